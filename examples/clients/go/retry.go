package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	rpccode "google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const retryTime = time.Minute

// Nothing that another try would change.
type failure struct {
	status *status.Status
}

func (f *failure) Error() string { return f.status.Message() }

func (f *failure) print() {
	fmt.Fprintf(os.Stderr, "client: %v: %s\n", rpccode.Code(f.status.Code()), f.status.Message())
	for _, detail := range f.status.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			fmt.Fprintf(os.Stderr, "  reason: %s\n", detail.GetReason())
		case *errdetails.BadRequest:
			for _, violation := range detail.GetFieldViolations() {
				fmt.Fprintf(os.Stderr, "  field: %s: %s\n", violation.GetField(), violation.GetDescription())
			}
		}
	}
}

// Between the tries of one operation; gives up when a minute has brought nothing.
type backoff struct {
	deadline time.Time
	delay    time.Duration
}

func newBackoff() *backoff {
	b := &backoff{}
	b.progressed()
	return b
}

func (b *backoff) progressed() {
	b.deadline = time.Now().Add(retryTime)
	b.delay = 100 * time.Millisecond
}

// Returns an error unless `err` is one that passes: UNAVAILABLE, CANCELLED (nobody here cancels: a server or proxy broke
// the call off), or with RetryInfo.
func (b *backoff) wait(err error, what string) error {
	failed, isStatus := status.FromError(err)
	if !isStatus {
		return err
	}
	passes := failed.Code() == codes.Unavailable || failed.Code() == codes.Canceled
	delay := b.delay/2 + rand.N(b.delay/2)
	for _, detail := range failed.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			passes = true
			delay = max(delay, info.GetRetryDelay().AsDuration())
		}
	}
	if !passes || time.Now().Add(delay).After(b.deadline) {
		return &failure{failed}
	}
	fmt.Fprintf(os.Stderr, "%v: %s; %s in %.1f s\n", rpccode.Code(failed.Code()), failed.Message(), what, delay.Seconds())
	time.Sleep(delay)
	b.delay = min(2*b.delay, 5*time.Second)
	return nil
}

// Asks until there is an answer, or an error that does not pass.
func retrying[T any](call func() (T, error)) (T, error) {
	for b := newBackoff(); ; {
		response, err := call()
		if err == nil {
			return response, nil
		}
		if err := b.wait(err, "asking again"); err != nil {
			return response, err
		}
	}
}
