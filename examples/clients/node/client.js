#!/usr/bin/env node
// Compiles a model through a Quench gateway: writes OUTPUT_DIR/model.so and OUTPUT_DIR/model.h.
'use strict';

const crypto = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');
const timers = require('node:timers/promises');
const {parseArgs} = require('node:util');

const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const CHUNK_BYTES = 1 << 20;
const MAX_MESSAGE_BYTES = 16 << 20;
const RETRY_MS = 60000;
// Nobody here cancels: a server or proxy broke the call off. Other codes pass only where RetryInfo says so.
const PASSING_CODES = [grpc.status.UNAVAILABLE, grpc.status.CANCELLED];
const FINAL_STATES = ['STATE_SUCCEEDED', 'STATE_FAILED', 'STATE_CANCELLED'];

// No code is generated: the contracts are read at the start. Sizes above 2^53 would need `longs: String`.
const types = protoLoader.loadSync(
    ['google/bytestream/bytestream.proto', 'google/rpc/error_details.proto', 'google/rpc/status.proto',
     'quench/gateway/v1/workflows.proto'],
    {includeDirs: [path.join(__dirname, '..', '..', '..', 'proto')], longs: Number, enums: String, defaults: true, oneofs: true});
const contracts = grpc.loadPackageDefinition(types);

// Nothing that another try would change; holds a google.rpc.Status.
class Failure extends Error {
  constructor(status) {
    super(status.message);
    this.status = status;
  }
}

// The google.rpc.Status that every error of a gateway carries; made from code and message where one has none.
function statusOf(error) {
  if (typeof error.code !== 'number' || !(error.metadata instanceof grpc.Metadata)) throw error;
  const [packed] = error.metadata.get('grpc-status-details-bin');
  return packed ? types['google.rpc.Status'].deserialize(packed) : {code: error.code, message: error.details, details: []};
}

function detail(status, type) {
  const packed = status.details.find((any) => any.type_url === `type.googleapis.com/${type}`);
  return packed && types[type].deserialize(packed.value);
}

function printError(status) {
  console.error(`client: ${grpc.status[status.code]}: ${status.message}`);
  const info = detail(status, 'google.rpc.ErrorInfo');
  if (info) console.error(`  reason: ${info.reason}`);
  for (const violation of detail(status, 'google.rpc.BadRequest')?.fieldViolations ?? []) {
    console.error(`  field: ${violation.field}: ${violation.description}`);
  }
}

// Between the tries of one operation; gives up when a minute has brought nothing.
class Backoff {
  constructor() {
    this.progressed();
  }

  progressed() {
    this.deadline = Date.now() + RETRY_MS;
    this.delay = 100;
  }

  // Throws Failure unless the error is one that passes.
  async wait(error, what) {
    const status = statusOf(error);
    const retryInfo = detail(status, 'google.rpc.RetryInfo');
    if (!PASSING_CODES.includes(error.code) && !retryInfo) throw new Failure(status);
    const asked = retryInfo?.retryDelay;
    const delay = Math.max(this.delay * (0.5 + Math.random() / 2), asked ? asked.seconds * 1000 + asked.nanos / 1e6 : 0);
    if (Date.now() + delay > this.deadline) throw new Failure(status);
    console.error(`${grpc.status[error.code]}: ${status.message}; ${what} in ${(delay / 1000).toFixed(1)} s`);
    await timers.setTimeout(delay);
    this.delay = Math.min(2 * this.delay, 5000);
  }
}

class Client {
  constructor(address, credentials, token) {
    const options = {'grpc.max_receive_message_length': MAX_MESSAGE_BYTES, 'grpc.keepalive_time_ms': 60000};
    this.bytes = new contracts.google.bytestream.ByteStream(address, credentials, options);
    this.workflows = new contracts.quench.gateway.v1.Workflows(address, credentials, options);
    this.metadata = new grpc.Metadata();
    if (token) this.metadata.set('authorization', `Bearer ${token}`);
  }

  close() {
    this.bytes.close();
    this.workflows.close();
  }

  async call(stub, method, request) {
    for (const backoff = new Backoff();;) {
      try {
        return await new Promise((resolve, reject) => {
          stub[method](request, this.metadata, (error, response) => error ? reject(error) : resolve(response));
        });
      } catch (error) {
        await backoff.wait(error, 'asking again');
      }
    }
  }

  // Does nothing more than ask where the gateway has the blob already.
  async upload(file, digest, breakOnce) {
    const size = digest.sizeBytes;
    const name = `uploads/${crypto.randomUUID()}/blobs/${digest.hash}/${size}`;
    const backoff = new Backoff();
    let offset = 0;
    let end = breakOnce ? Math.floor(size / 2) : size;
    for (;;) {
      try {
        if (await this.write(file, name, offset, end, size) === size) return;
      } catch (error) {
        await backoff.wait(error, 'resuming the upload');
      }
      end = size;
      const status = await this.call(this.bytes, 'queryWriteStatus', {resourceName: name});
      if (status.complete) return;
      if (status.committedSize > offset) backoff.progressed();
      offset = status.committedSize;
      console.error(`upload resumes at ${offset} of ${size} bytes`);
    }
  }

  // Sends the bytes from `offset` to `end`, without `finishWrite` where that is not the blob's end; how many the gateway has.
  async write(file, name, offset, end, size) {
    let ended = false;
    let call;
    const committed = new Promise((resolve, reject) => {
      call = this.bytes.write(this.metadata, (error, response) => {
        ended = true;
        error ? reject(error) : resolve(response.committedSize);
      });
    });
    // It is awaited below; until then nobody else looks.
    committed.catch(() => {});
    const handle = await fs.promises.open(file);
    try {
      do {
        const data = Buffer.alloc(Math.min(CHUNK_BYTES, end - offset));
        const {bytesRead} = await handle.read(data, 0, data.length, offset);
        if (bytesRead < data.length) throw new Error(`\`${file}\` became shorter while it was read`);
        const finishWrite = offset + data.length === size;
        if (!call.write({resourceName: name, writeOffset: offset, data, finishWrite}) && !ended) {
          await Promise.race([new Promise((resolve) => call.once('drain', resolve)), committed]);
        }
        offset += data.length;
      } while (offset < end && !ended);
      call.end();
      return await committed;
    } catch (error) {
      call.cancel();
      throw error;
    } finally {
      await handle.close();
    }
  }

  // Safe to repeat: the same requestId gives the same workflow. Returns its name.
  async create(spec) {
    const operation = await this.call(this.workflows, 'createWorkflow', {requestId: crypto.randomUUID(), spec});
    return operation.name.replace('operations/', 'workflows/');
  }

  // The workflow and its steps by name, once it has ended.
  async watch(name) {
    const steps = new Map();
    const backoff = new Backoff();
    let workflow;
    let revision = 0;
    for (;;) {
      try {
        for await (const event of this.workflows.watchWorkflow({name, afterRevision: revision}, this.metadata)) {
          backoff.progressed();
          revision = event.revision;
          if (event.snapshot) steps.clear();
          workflow = event.snapshot ?? event.change.workflow ?? workflow;
          for (const step of (event.snapshot ?? event.change).steps) {
            steps.set(step.name, step);
            printStep(step);
          }
        }
        if (workflow && FINAL_STATES.includes(workflow.state)) return {workflow, steps};
      } catch (error) {
        await backoff.wait(error, `watching again after revision ${revision}`);
      }
    }
  }

  // The file appears when it is whole and right.
  async download(digest, file) {
    const resourceName = `blobs/${digest.hash}/${digest.sizeBytes}`;
    const part = `${file}.part`;
    const sha256 = crypto.createHash('sha256');
    const backoff = new Backoff();
    const handle = await fs.promises.open(part, 'w');
    let offset = 0;
    try {
      while (offset < digest.sizeBytes) {
        try {
          for await (const {data} of this.bytes.read({resourceName, readOffset: offset}, this.metadata)) {
            await handle.writeFile(data);
            sha256.update(data);
            offset += data.length;
            backoff.progressed();
          }
          break;
        } catch (error) {
          await backoff.wait(error, `reading on from byte ${offset}`);
        }
      }
    } finally {
      await handle.close();
    }
    const found = sha256.digest('hex');
    if (offset !== digest.sizeBytes || found !== digest.hash) {
      const message = `\`${path.basename(file)}\` came with sha256 ${found}, ${digest.hash} was asked for`;
      throw new Failure({code: grpc.status.DATA_LOSS, message, details: []});
    }
    await fs.promises.rename(part, file);
  }
}

function printStep(step) {
  let text = step.state.replace('STATE_', '').toLowerCase();
  if (step.cacheHit) text += ', cached';
  if (step.state === 'STATE_RUNNING' && step.progress) {
    text += `, ${step.progress.stage} ${step.progress.done}${step.progress.total ? ` of ${step.progress.total}` : ''}`;
  }
  console.error(`${step.name}: ${text}`);
}

async function digestOf(file, known) {
  const {size: sizeBytes} = await fs.promises.stat(file);
  if (known) return {hash: known, sizeBytes};
  const sha256 = crypto.createHash('sha256');
  for await (const data of fs.createReadStream(file, {highWaterMark: CHUNK_BYTES})) sha256.update(data);
  return {hash: sha256.digest('hex'), sizeBytes};
}

// One cell of a batch: its steps are `model/import`, `model/default/transform` and `model/default/{target}/compile`.
function compileSpec(file, digest, target) {
  const name = path.basename(file);
  return {
    title: `compile ${name}`,
    compile: {models: [{name: 'model', model: {file: digest, name}}], choices: [{name: 'default'}], targets: [{name: target}]},
  };
}

async function compile(client, file, output, options) {
  const digest = await digestOf(file, options.sha256);
  await client.upload(file, digest, options['break-upload']);
  const name = await client.create(compileSpec(file, digest, options.target));
  console.error(name);
  const {workflow, steps} = await client.watch(name);
  if (workflow.state !== 'STATE_SUCCEEDED') throw new Failure(workflow.error);
  const {outputs} = steps.get(`model/default/${options.target}/compile`);
  const outputOf = (wanted) => outputs.find((each) => each.name === wanted).digest;
  await fs.promises.mkdir(output, {recursive: true});
  await client.download(outputOf('library'), path.join(output, 'model.so'));
  await client.download(outputOf('header'), path.join(output, 'model.h'));
}

const USAGE = `usage: client --gateway HOST:PORT [options] MODEL OUTPUT_DIR
  --ca FILE          PEM of who signs the gateway's certificate; absent: plain text
  --token-file FILE  holds a bearer token
  --target NAME      default: x86-64-v3
  --sha256 HEX       of MODEL, where it is known already
  --break-upload     for tests: the upload stops half way once, and resumes`;

function parseCommandLine() {
  try {
    const {values, positionals} = parseArgs({
      allowPositionals: true,
      options: {
        gateway: {type: 'string'}, ca: {type: 'string'}, 'token-file': {type: 'string'}, target: {type: 'string', default: 'x86-64-v3'},
        sha256: {type: 'string'}, 'break-upload': {type: 'boolean', default: false}},
    });
    if (!values.gateway || positionals.length !== 2) throw new Error('--gateway, MODEL and OUTPUT_DIR must be given');
    return {options: values, file: positionals[0], output: positionals[1]};
  } catch (error) {
    console.error(`client: ${error.message}\n${USAGE}`);
    process.exit(2);
  }
}

async function main() {
  const {options, file, output} = parseCommandLine();
  let client;
  try {
    const credentials = options.ca ? grpc.credentials.createSsl(fs.readFileSync(options.ca)) : grpc.credentials.createInsecure();
    const token = options['token-file'] && fs.readFileSync(options['token-file'], 'utf8').trim();
    client = new Client(options.gateway, credentials, token);
    await compile(client, file, output, options);
  } catch (error) {
    if (error instanceof Failure) {
      printError(error.status);
    } else {
      console.error(`client: ${error.message}`);
    }
    process.exitCode = 1;
  } finally {
    client?.close();
  }
}

main();
