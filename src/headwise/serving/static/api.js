/* Talking to the server: an answer, or a problem in words that says what can be done about it. */

export class Problem extends Error {
  /* `retry`: whether asking again may help; `wait`: after how many seconds. */
  constructor(message, { retry = false, wait = null, key = false } = {}) {
    super(message);
    Object.assign(this, { retry, wait, key });
  }
}

/* The body is sent as JSON, or as the form that it is. */
export async function ask(path, body, signal) {
  const answer = await send(path, body, signal);
  const content = await contentOf(answer);
  if (answer.ok && content !== null) return content;
  throw problemOf(answer, content);
}

/* The events of a stream, as they come. */
export async function* askForEvents(path, body, signal) {
  const answer = await send(path, { ...body, stream: true }, signal);
  if (!answer.ok) throw problemOf(answer, await contentOf(answer));
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await next(reader);
    if (done) throw new Problem("The server stopped before the end of its answer.", { retry: true });
    const events = (held + value).split("\n\n");
    held = events.pop();
    for (const event of events) {
      const data = event.slice("data: ".length);
      if (data === "[DONE]") return;
      const content = JSON.parse(data);
      if (content.error) throw new Problem(`The server stopped: ${content.error}.`, { retry: true });
      yield content;
    }
  }
}

async function next(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The connection to the server was lost.", { retry: true });
  }
}

async function send(path, body, signal) {
  const isJson = body !== undefined && !(body instanceof FormData);
  try {
    return await fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers: isJson ? { "Content-Type": "application/json" } : {},
      body: isJson ? JSON.stringify(body) : body,
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The server cannot be reached. Is it running, and are you online?", { retry: true, wait: 5 });
  }
}

async function contentOf(answer) {
  try {
    return await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return null;
  }
}

function problemOf(answer, content) {
  const says = content && typeof content.error === "string" ? content.error : "no reason was given";
  const wait = Number(answer.headers.get("Retry-After")) || null;
  switch (answer.status) {
    case 401:
    case 403:
      return new Problem("The server asks for an API key, or does not know yours any more.", { key: true });
    case 413:
      return new Problem(`That is too much at once: ${says}.`);
    case 429:
      return new Problem("Many people are using this server just now.", { retry: true, wait: wait || 2 });
    case 503:
      return new Problem("The server is stopping, starting or very busy.", { retry: true, wait: wait || 5 });
    case 504:
      return new Problem("The answer took too long. Less at a time may do.", { retry: true });
    default:
      if (answer.status >= 500) return new Problem("Something went wrong in the server.", { retry: true });
      return new Problem(`The server refuses this: ${says}.`);
  }
}
