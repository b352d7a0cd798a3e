// Compiles a model through a Quench gateway: writes OUTPUT_DIR/model.so and OUTPUT_DIR/model.h.
//
// The stubs are generated into ./gen: see ../README.md.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	reapi "example.com/quench-client/gen/build/bazel/remote/execution/v2"
	codegen "example.com/quench-client/gen/quench/codegen/v1"
	gateway "example.com/quench-client/gen/quench/gateway/v1"
	importer "example.com/quench-client/gen/quench/importer/v1"
)

const maxMessageBytes = 16 << 20

type options struct {
	gateway, ca, tokenFile, target, sha256, model, output string
	breakUpload                                           bool
}

func parseOptions() options {
	var o options
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: client --gateway HOST:PORT [options] MODEL OUTPUT_DIR")
		flag.PrintDefaults()
	}
	flag.StringVar(&o.gateway, "gateway", "", "`HOST:PORT`")
	flag.StringVar(&o.ca, "ca", "", "PEM `FILE` of who signs the gateway's certificate; absent: plain text")
	flag.StringVar(&o.tokenFile, "token-file", "", "`FILE` that holds a bearer token")
	flag.StringVar(&o.target, "target", "x86-64-v3", "`NAME` of the target")
	flag.StringVar(&o.sha256, "sha256", "", "of MODEL in `HEX`, where it is known already")
	flag.BoolVar(&o.breakUpload, "break-upload", false, "for tests: the upload stops half way once, and resumes")
	flag.Parse()
	if o.gateway == "" || flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "client: --gateway, MODEL and OUTPUT_DIR must be given")
		flag.Usage()
		os.Exit(2)
	}
	o.model, o.output = flag.Arg(0), flag.Arg(1)
	return o
}

func openChannel(o options) (*grpc.ClientConn, error) {
	transport := insecure.NewCredentials()
	if o.ca != "" {
		var err error
		if transport, err = credentials.NewClientTLSFromFile(o.ca, ""); err != nil {
			return nil, err
		}
	}
	return grpc.NewClient(o.gateway, grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: time.Minute}))
}

func digestOf(path, known string) (*reapi.Digest, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if known == "" {
		hash := sha256.New()
		if _, err := io.Copy(hash, file); err != nil {
			return nil, err
		}
		known = hex.EncodeToString(hash.Sum(nil))
	}
	return &reapi.Digest{Hash: known, SizeBytes: info.Size()}, nil
}

// One cell of a batch: its steps are `model/import`, `model/default/transform` and `model/default/{target}/compile`.
func compileSpec(path string, digest *reapi.Digest, target string) *gateway.WorkflowSpec {
	name := filepath.Base(path)
	return &gateway.WorkflowSpec{
		Title: "compile " + name,
		Work: &gateway.WorkflowSpec_Compile{Compile: &gateway.CompileBatch{
			Models: []*gateway.BatchModel{{
				Name:   "model",
				Source: &gateway.BatchModel_Model{Model: &importer.Model{File: digest, Name: name}},
			}},
			Choices: []*gateway.CompileChoice{{Name: "default"}},
			Targets: []*codegen.Target{{Name: target}},
		}},
	}
}

func compile(ctx context.Context, client *client, o options) error {
	digest, err := digestOf(o.model, o.sha256)
	if err != nil {
		return err
	}
	if err := client.upload(ctx, o.model, digest, o.breakUpload); err != nil {
		return err
	}
	name, err := client.create(ctx, compileSpec(o.model, digest, o.target))
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, name)
	steps, err := client.watch(ctx, name)
	if err != nil {
		return err
	}
	outputs := map[string]*reapi.Digest{}
	for _, output := range steps["model/default/"+o.target+"/compile"].GetOutputs() {
		outputs[output.GetName()] = output.GetDigest()
	}
	if err := os.MkdirAll(o.output, 0o777); err != nil {
		return err
	}
	if err := client.download(ctx, outputs["library"], filepath.Join(o.output, "model.so")); err != nil {
		return err
	}
	return client.download(ctx, outputs["header"], filepath.Join(o.output, "model.h"))
}

func run(o options) error {
	ctx := context.Background()
	if o.tokenFile != "" {
		token, err := os.ReadFile(o.tokenFile)
		if err != nil {
			return err
		}
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	channel, err := openChannel(o)
	if err != nil {
		return err
	}
	defer channel.Close()
	return compile(ctx, newClient(channel), o)
}

func main() {
	err := run(parseOptions())
	if failed := (*failure)(nil); errors.As(err, &failed) {
		failed.print()
	} else if err != nil {
		fmt.Fprintf(os.Stderr, "client: %v\n", err)
	}
	if err != nil {
		os.Exit(1)
	}
}
