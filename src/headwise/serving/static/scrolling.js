/* Boxes that scroll, within reach of the keyboard. */

/* Let a box be a stop for the Tab key while there is more in its only child than it shows. */
export function keepInReach(box) {
  const observer = new ResizeObserver(() => {
    if (box.scrollHeight > box.clientHeight) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  });
  observer.observe(box);
  observer.observe(box.firstElementChild);
}
