package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"cloud.google.com/go/longrunning/autogen/longrunningpb"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	reapi "example.com/quench-client/gen/build/bazel/remote/execution/v2"
	gateway "example.com/quench-client/gen/quench/gateway/v1"
)

const chunkBytes = 1 << 20

type client struct {
	bytes     bytestream.ByteStreamClient
	workflows gateway.WorkflowsClient
}

func newClient(channel *grpc.ClientConn) *client {
	return &client{bytestream.NewByteStreamClient(channel), gateway.NewWorkflowsClient(channel)}
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // Never fails.
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Does nothing more than ask where the gateway has the blob already.
func (c *client) upload(ctx context.Context, path string, digest *reapi.Digest, breakOnce bool) error {
	size := digest.GetSizeBytes()
	name := fmt.Sprintf("uploads/%s/blobs/%s/%d", newUUID(), digest.GetHash(), size)
	offset, end := int64(0), size
	if breakOnce {
		end = size / 2
	}
	for b := newBackoff(); ; {
		committed, err := c.write(ctx, path, name, offset, end, size)
		if err == nil && committed == size {
			return nil
		}
		if err != nil {
			if err := b.wait(err, "resuming the upload"); err != nil {
				return err
			}
		}
		end = size
		state, err := retrying(func() (*bytestream.QueryWriteStatusResponse, error) {
			return c.bytes.QueryWriteStatus(ctx, &bytestream.QueryWriteStatusRequest{ResourceName: name})
		})
		if err != nil || state.GetComplete() {
			return err
		}
		if state.GetCommittedSize() > offset {
			b.progressed()
		}
		offset = state.GetCommittedSize()
		fmt.Fprintf(os.Stderr, "upload resumes at %d of %d bytes\n", offset, size)
	}
}

// Sends the bytes from `offset` to `end`, without FinishWrite where that is not the blob's end; how many the gateway has.
func (c *client) write(ctx context.Context, path, name string, offset, end, size int64) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	// Ends the call when this returns early.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.bytes.Write(ctx)
	if err != nil {
		return 0, err
	}
	for data := make([]byte, chunkBytes); ; {
		data = data[:min(chunkBytes, end-offset)]
		if _, err := file.ReadAt(data, offset); err != nil {
			return 0, fmt.Errorf("`%s` became shorter while it was read: %w", path, err)
		}
		finish := offset+int64(len(data)) == size
		err := stream.Send(&bytestream.WriteRequest{ResourceName: name, WriteOffset: offset, Data: data, FinishWrite: finish})
		offset += int64(len(data))
		// io.EOF: the gateway has answered already.
		if errors.Is(err, io.EOF) || offset == end {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	response, err := stream.CloseAndRecv()
	return response.GetCommittedSize(), err
}

// Safe to repeat: the same RequestId gives the same workflow. Returns its name.
func (c *client) create(ctx context.Context, spec *gateway.WorkflowSpec) (string, error) {
	request := &gateway.CreateWorkflowRequest{RequestId: newUUID(), Spec: spec}
	operation, err := retrying(func() (*longrunningpb.Operation, error) { return c.workflows.CreateWorkflow(ctx, request) })
	return strings.Replace(operation.GetName(), "operations/", "workflows/", 1), err
}

// The workflow's steps by name, once it has succeeded.
func (c *client) watch(ctx context.Context, name string) (map[string]*gateway.Step, error) {
	var workflow *gateway.Workflow
	var revision int64
	steps := map[string]*gateway.Step{}
	for b := newBackoff(); ; {
		stream, err := c.workflows.WatchWorkflow(ctx, &gateway.WatchWorkflowRequest{Name: name, AfterRevision: revision})
		for err == nil {
			var event *gateway.WatchWorkflowEvent
			if event, err = stream.Recv(); err != nil {
				break
			}
			b.progressed()
			revision = event.GetRevision()
			changed := event.GetChange().GetSteps()
			if snapshot := event.GetSnapshot(); snapshot != nil {
				workflow, changed = snapshot, snapshot.GetSteps()
				clear(steps)
			} else if event.GetChange().GetWorkflow() != nil {
				workflow = event.GetChange().GetWorkflow()
			}
			for _, step := range changed {
				steps[step.GetName()] = step
				printStep(step)
			}
		}
		if errors.Is(err, io.EOF) {
			switch workflow.GetState() {
			case gateway.State_STATE_SUCCEEDED:
				return steps, nil
			case gateway.State_STATE_FAILED, gateway.State_STATE_CANCELLED:
				return nil, &failure{status.FromProto(workflow.GetError())}
			}
			continue
		}
		if err := b.wait(err, fmt.Sprintf("watching again after revision %d", revision)); err != nil {
			return nil, err
		}
	}
}

func printStep(step *gateway.Step) {
	text := strings.ToLower(strings.TrimPrefix(step.GetState().String(), "STATE_"))
	if step.GetCacheHit() {
		text += ", cached"
	}
	if progress := step.GetProgress(); progress != nil && step.GetState() == gateway.State_STATE_RUNNING {
		text += fmt.Sprintf(", %s %d", progress.GetStage(), progress.GetDone())
		if progress.GetTotal() > 0 {
			text += fmt.Sprintf(" of %d", progress.GetTotal())
		}
	}
	fmt.Fprintf(os.Stderr, "%s: %s\n", step.GetName(), text)
}

// The file appears when it is whole and right.
func (c *client) download(ctx context.Context, digest *reapi.Digest, path string) error {
	part := path + ".part"
	file, err := os.Create(part)
	if err != nil {
		return err
	}
	defer file.Close()
	hash := sha256.New()
	offset, err := c.read(ctx, digest, io.MultiWriter(file, hash))
	if err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	found := hex.EncodeToString(hash.Sum(nil))
	if offset != digest.GetSizeBytes() || found != digest.GetHash() {
		return &failure{status.Newf(codes.DataLoss, "`%s` came with sha256 %s, %s was asked for", filepath.Base(path), found, digest.GetHash())}
	}
	return os.Rename(part, path)
}

// How many bytes it wrote: all, unless the gateway has fewer.
func (c *client) read(ctx context.Context, digest *reapi.Digest, to io.Writer) (int64, error) {
	name := fmt.Sprintf("blobs/%s/%d", digest.GetHash(), digest.GetSizeBytes())
	offset := int64(0)
	for b := newBackoff(); offset < digest.GetSizeBytes(); {
		stream, err := c.bytes.Read(ctx, &bytestream.ReadRequest{ResourceName: name, ReadOffset: offset})
		for err == nil {
			var response *bytestream.ReadResponse
			if response, err = stream.Recv(); err != nil {
				break
			}
			if _, err := to.Write(response.GetData()); err != nil {
				return offset, err
			}
			offset += int64(len(response.GetData()))
			b.progressed()
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err := b.wait(err, fmt.Sprintf("reading on from byte %d", offset)); err != nil {
			return offset, err
		}
	}
	return offset, nil
}
