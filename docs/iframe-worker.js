// Search in pages that were opened from the disk, where browsers start no workers: a hidden frame takes the worker's
// place. A worker there is a script that calls postMessage(data), importScripts(url, ...) and listens to "message".
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.frame = frame;
      const inside = frame.contentWindow;
      const message = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      // Waits for scripts: whoever imports may go on with what it returns, as with any promise.
      inside.importScripts = (...urls) =>
        urls.reduce(
          (before, address) =>
            before.then(
              () =>
                new Promise((loaded, failed) => {
                  const script = inside.document.createElement("script");
                  script.src = address;
                  script.onload = loaded;
                  script.onerror = failed;
                  inside.document.body.appendChild(script);
                }),
            ),
          Promise.resolve(),
        );
      inside.postMessage = message;
      this.ready = new Promise((loaded) => {
        const script = inside.document.createElement("script");
        script.src = url;
        script.onload = loaded;
        inside.document.body.appendChild(script);
      });
    }
    postMessage(data) {
      this.ready.then(() => {
        const event = new MessageEvent("message", { data });
        this.frame.contentWindow.dispatchEvent(event);
      });
    }
    terminate() {
      this.frame.remove();
    }
  };
}
