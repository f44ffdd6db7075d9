// Server-sent events of a response that was fetched: EventSource cannot send an API key.

/** Yields {id, event, data} of each event; `data` is parsed JSON. Ends with the stream. */
export async function* serverEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      const blocks = rest.split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const found = parsed(block);
        if (found) yield found;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** An event; null for a comment. */
function parsed(block) {
  const fields = {};
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 1).trimStart();
  }
  return fields.data === undefined ? null : { id: fields.id, event: fields.event, data: JSON.parse(fields.data) };
}
