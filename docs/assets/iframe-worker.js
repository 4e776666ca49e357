// A page that was opened as a file may start no worker. The search then runs in a hidden iframe.
if (location.protocol === "file:") {
  const load = (frame, url) =>
    new Promise((resolve, reject) => {
      const script = frame.document.createElement("script");
      Object.assign(script, { src: url, onload: resolve, onerror: reject });
      frame.document.body.append(script);
    });

  window.Worker = class extends EventTarget {
    #element = document.createElement("iframe");
    #loaded;

    constructor(url) {
      super();
      this.#element.hidden = true;
      document.body.append(this.#element);
      const frame = this.#element.contentWindow;
      frame.document.open();
      frame.document.write("<body></body>");
      frame.document.close();
      frame.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        this.onmessage?.(event);
      };
      frame.importScripts = async (...urls) => {
        for (const each of urls) await load(frame, each);
      };
      this.#loaded = load(frame, url);
    }

    async postMessage(data) {
      await this.#loaded;
      const frame = this.#element.contentWindow;
      frame.dispatchEvent(new frame.MessageEvent("message", { data: structuredClone(data) }));
    }

    terminate() {
      this.#element.remove();
    }
  };
}
