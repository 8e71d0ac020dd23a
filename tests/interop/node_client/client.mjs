// A client of the Treadle socket protocol in another language, written from docs/protocol.md alone: it proves that the
// page is enough. It plays a script of steps and prints what came of them.
//
//   node client.mjs SOCKET [SCRIPT]
//
// SCRIPT is a JSON array of steps (standard input without it). The output is a JSON array with one entry per step.
// A step is one of
//
//   {"do": "connect"}                              a new connection; the first one is made by itself
//   {"do": "hello", "peer"?: text}                 -> {"frame"}
//   {"do": "request", "kind": text, "body"?: map, "id"?: int, "as"?: text}
//                                                  -> {"frame"}, or {"sent": id} with "as": then it is not waited for
//   {"do": "list", "server"?: text, "as"?: text}   the request `list`
//   {"do": "call", "server": text, "tool": text, "arguments"?: map, "timeout_ms"?: int, "as"?: text}
//   {"do": "await", "of": text}                    the answer to a request that was sent with that "as" -> {"frame"}
//   {"do": "cancel", "of": text}                   takes that request back -> {"sent": id}
//   {"do": "batch", "requests": [{"kind", "body"?}]}  all in one write -> {"frames": in the order of their arrival}
//   {"do": "one_shot", "kind": text, "body"?: map} hello and one request in one write -> {"frames"}
//   {"do": "oversized", "size": int}               a length prefix alone -> {"frames", "closed": true}
//   {"do": "raw", "hex": text}                     any bytes, read to the end -> {"frames", "closed": true}
//
// An entry may also be {"closed": true} (the connection ended instead of an answer) or {"failed": reason}. What JSON
// does not have is written {"$bin": hex}, {"$ext": [type, hex]}, {"$date": seconds}, {"$int": digits}.

import net from 'node:net'
import { readFileSync } from 'node:fs'
import { decode, encode, ExtData } from '@msgpack/msgpack'

const MAX_FRAME = 16 * 1024 * 1024
const PATIENCE_MS = 30_000
const HELLO_ID = 1

class Closed extends Error {}

function frameOf(id, kind, body = {}) {
  const payload = encode({ v: 1, id, kind, body }, { useBigInt64: true })
  if (payload.length > MAX_FRAME) throw new Error(`the frame is ${payload.length} bytes, the limit is ${MAX_FRAME}`)
  const frame = Buffer.allocUnsafe(4 + payload.length)
  frame.writeUInt32BE(payload.length)
  frame.set(payload, 4)
  return frame
}

// Cuts a stream into payloads; the chunks of an incomplete frame are joined once, when it is complete.
class FrameReader {
  #chunks = []
  #held = 0
  #need = 4;

  *feed(chunk) {
    this.#chunks.push(chunk)
    this.#held += chunk.length
    if (this.#held < this.#need) return
    let buffer = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks)
    this.#need = 4
    while (buffer.length >= 4) {
      const length = buffer.readUInt32BE()
      if (length > MAX_FRAME) throw new Error(`a length prefix of ${length} bytes`)
      if (buffer.length < 4 + length) {
        this.#need = 4 + length
        break
      }
      yield decode(buffer.subarray(4, 4 + length), { useBigInt64: true })
      buffer = buffer.subarray(4 + length)
    }
    this.#chunks = buffer.length ? [buffer] : []
    this.#held = buffer.length
  }
}

class Connection {
  #socket
  #reader = new FrameReader()
  #waiting = new Map() // id -> [resolve, reject]
  #arrived = [] // frames that nobody waited for, the newest last
  #ended
  #nextId = HELLO_ID + 1

  static open(path) {
    return new Promise((resolve, reject) => {
      const socket = net.createConnection(path)
      socket.once('error', reject)
      socket.once('connect', () => resolve(new Connection(socket)))
    })
  }

  constructor(socket) {
    this.#socket = socket
    socket.removeAllListeners('error')
    this.#ended = new Promise((resolve) => socket.once('close', resolve))
    socket.on('error', () => {}) // 'close' follows
    socket.on('data', (chunk) => {
      try {
        for (const frame of this.#reader.feed(chunk)) this.#take(frame)
      } catch (error) {
        socket.destroy()
        this.#fail(error)
      }
    })
    socket.on('close', () => this.#fail(new Closed('the connection ended')))
  }

  #take(frame) {
    const waiter = this.#waiting.get(Number(frame.id))
    this.#waiting.delete(Number(frame.id))
    if (waiter) waiter[0](frame)
    else this.#arrived.push(frame)
  }

  #fail(error) {
    for (const [, reject] of this.#waiting.values()) reject(error)
    this.#waiting.clear()
  }

  newId() {
    return this.#nextId++
  }

  write(bytes) {
    this.#socket.write(bytes)
  }

  answer(id) {
    const answered = new Promise((resolve, reject) => {
      if (this.#socket.destroyed) reject(new Closed('the connection ended'))
      this.#waiting.set(id, [resolve, reject])
    })
    answered.catch(() => {}) // whoever waits for it sees it all the same
    return answered
  }

  // The frames that came and were no answers, once the daemon has closed the connection.
  async rest() {
    await this.#ended
    return this.#arrived
  }

  close() {
    this.#socket.destroy()
  }
}

function fromScript(value) {
  if (Array.isArray(value)) return value.map(fromScript)
  if (value === null || typeof value !== 'object') return value
  if ('$bin' in value) return Buffer.from(value.$bin, 'hex')
  if ('$ext' in value) return new ExtData(value.$ext[0], Buffer.from(value.$ext[1], 'hex'))
  if ('$date' in value) return new Date(value.$date * 1000)
  if ('$int' in value) return BigInt(value.$int)
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, fromScript(item)]))
}

function toOutput(key, value) {
  if (typeof value === 'bigint') return Number.isSafeInteger(Number(value)) ? Number(value) : { $int: String(value) }
  if (value instanceof Uint8Array) return { $bin: Buffer.from(value).toString('hex') }
  return value
}

function withTimeout(promise) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing came within ${PATIENCE_MS} ms`)), PATIENCE_MS)
  })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

const hello = (peer) => frameOf(HELLO_ID, 'hello', { proto: 1, peer: peer ?? 'node', features: [] })

class Player {
  #path
  #connection
  #sent = new Map() // the name of a request -> {id, answer}

  constructor(path) {
    this.#path = path
  }

  async play(step) {
    const action = this[step.do]
    if (!Player.STEPS.has(step.do)) throw new Error(`unknown step ${step.do}`)
    this.#connection ??= await Connection.open(this.#path)
    return action.call(this, step)
  }

  static STEPS = new Set(
    ['connect', 'hello', 'request', 'list', 'call', 'await', 'cancel', 'batch', 'one_shot', 'oversized', 'raw'])

  async connect() {
    this.#connection.close()
    this.#connection = await Connection.open(this.#path)
    return { connected: true }
  }

  async hello({ peer }) {
    const answer = this.#connection.answer(HELLO_ID)
    this.#connection.write(hello(peer))
    return { frame: await answer }
  }

  async request({ kind, body, id, as }) {
    id ??= this.#connection.newId()
    const bytes = frameOf(id, kind, fromScript(body ?? {}))
    const answer = this.#connection.answer(id)
    this.#connection.write(bytes)
    if (!as) return { frame: await answer }
    this.#sent.set(as, { id, answer })
    return { sent: id }
  }

  list({ server, as }) {
    return this.request({ kind: 'list', body: server === undefined ? {} : { server }, as })
  }

  call({ server, tool, arguments: given, timeout_ms, as }) {
    const body = { server, tool, arguments: given ?? {} }
    if (timeout_ms !== undefined) body.timeout_ms = timeout_ms
    return this.request({ kind: 'call', body, as })
  }

  async await({ of }) {
    return { frame: await this.#sent.get(of).answer }
  }

  async cancel({ of }) {
    const { id } = this.#sent.get(of)
    this.#connection.write(frameOf(id, 'cancel'))
    return { sent: id }
  }

  async batch({ requests }) {
    const frames = []
    const answers = []
    const bytes = requests.map(({ kind, body }) => {
      const id = this.#connection.newId()
      answers.push(this.#connection.answer(id).then((frame) => frames.push(frame)))
      return frameOf(id, kind, fromScript(body ?? {}))
    })
    this.#connection.write(Buffer.concat(bytes))
    await Promise.all(answers)
    return { frames }
  }

  async one_shot({ kind, body }) {
    const id = this.#connection.newId()
    const answers = [this.#connection.answer(HELLO_ID), this.#connection.answer(id)]
    this.#connection.write(Buffer.concat([hello(), frameOf(id, kind, fromScript(body ?? {}))]))
    return { frames: await Promise.all(answers) }
  }

  oversized({ size }) {
    const prefix = Buffer.alloc(4)
    prefix.writeUInt32BE(size)
    return this.raw({ hex: prefix.toString('hex') })
  }

  async raw({ hex }) {
    this.#connection.write(Buffer.from(hex, 'hex'))
    return { frames: await this.#connection.rest(), closed: true }
  }

  close() {
    this.#connection?.close()
  }
}

const [path, script] = process.argv.slice(2)
if (path === undefined) {
  console.error('usage: node client.mjs SOCKET [SCRIPT]')
  process.exit(2)
}
const steps = JSON.parse(script ?? readFileSync(0, 'utf8'))
const player = new Player(path)
const results = []
for (const step of steps) {
  try {
    results.push(await withTimeout(player.play(step)))
  } catch (error) {
    results.push(error instanceof Closed ? { closed: true } : { failed: error.message })
  }
}
player.close()
console.log(JSON.stringify(results, toOutput, 1))
