// Pages that are opened as files may not start a worker, so that the search would not work. This runs the worker's script in a frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.waiting = []
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}))
      inside.importScripts = (...urls) => urls.reduce((before, each) => before.then(() => this.load(each)), Promise.resolve())
      this.load(url).then(() => {
        for (const data of this.waiting.splice(0)) this.post(data)
        this.waiting = undefined
      })
    }

    load(url) {
      return new Promise((resolve, reject) => {
        const script = this.frame.contentDocument.createElement("script")
        Object.assign(script, {src: url, onload: resolve, onerror: reject})
        this.frame.contentDocument.body.append(script)
      })
    }

    post(data) {
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", {data}))
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data)
      else this.post(data)
    }

    terminate() {
      this.frame.remove()
    }
  }
}
