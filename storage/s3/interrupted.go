package s3

import (
	"context"
	"errors"

	"github.com/aws/smithy-go/middleware"
)

// keepLastTry makes a request whose context ends return an interruptedRequest if a try has failed before. The SDK
// returns only that the context has ended. The SDK calls keepLastTry for each request.
func keepLastTry(stack *middleware.Stack) error {
	var last error
	try := func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (
		middleware.FinalizeOutput, middleware.Metadata, error,
	) {
		out, metadata, err := next.HandleFinalize(ctx, in)
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return out, metadata, err
	}
	request := func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (
		middleware.FinalizeOutput, middleware.Metadata, error,
	) {
		out, metadata, err := next.HandleFinalize(ctx, in)
		if last != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = &interruptedRequest{ctx.Err(), last}
		}
		return out, metadata, err
	}
	const retries = "Retry" // the SDK's name of the step that repeats a try
	return errors.Join(
		stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("dr:request", request), retries, middleware.Before),
		stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("dr:try", try), retries, middleware.After),
	)
}

// interruptedRequest is the error of a request whose context ended after a try had failed. It does not match last:
// another try may have taken effect, so status and isAmbiguous must not see its answer.
type interruptedRequest struct{ ended, last error }

func (i *interruptedRequest) Error() string { return i.ended.Error() }
func (i *interruptedRequest) Unwrap() error { return i.ended }
