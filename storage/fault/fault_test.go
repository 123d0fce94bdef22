package fault_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"strconv"
	"testing"

	"github.com/etcd-dr/etcd-dr/storage/fault"
)

var errGone = fault.New(fault.NotFound, "gone")

func TestKindOf(t *testing.T) {
	for _, test := range []struct {
		err  error
		want fault.Kind
	}{
		{nil, ""},
		{io.EOF, fault.Internal},
		{fmt.Errorf("%w: no", fault.Usage), fault.Usage},
		{fmt.Errorf("it is %w", errGone), fault.NotFound},
		{fault.Mark(fault.Busy, io.EOF), fault.Busy},
		{fmt.Errorf("read: %w", context.Canceled), fault.Interrupted},
		{fmt.Errorf("read: %w", context.DeadlineExceeded), fault.Unreachable},
		{errors.Join(context.Canceled, fault.Usage, fault.Damaged), fault.Damaged},
		{fmt.Errorf("%w: %w", errGone, fault.Refused), fault.Refused},
	} {
		got := fault.KindOf(test.err)
		if got != test.want {
			t.Errorf("%v is of kind %q, want %q", test.err, got, test.want)
		}
	}
}

// A kind that KindOf does not know would turn into Internal, with another exit code.
func TestKindOfKnowsEveryKind(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "fault.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	kinds := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !isKind(spec.Type) {
			return true
		}
		for _, value := range spec.Values {
			name, err := strconv.Unquote(value.(*ast.BasicLit).Value)
			kind := fault.Kind(name)
			got := fault.KindOf(fmt.Errorf("read: %w", kind))
			if err != nil || got != kind {
				t.Errorf("an error of kind %q is of kind %q: add it to byPrecedence; %v", name, got, err)
			}
			kinds++
		}
		return true
	})
	if kinds < 9 {
		t.Errorf("found %d kinds in fault.go", kinds)
	}
}

func isKind(e ast.Expr) bool {
	name, ok := e.(*ast.Ident)
	return ok && name.Name == "Kind"
}

func TestErrorNamesObjectProblemAndRemedy(t *testing.T) {
	full := fault.Error{Kind: fault.Denied, Object: "bucket b", Cause: io.EOF, Remedy: "try again"}
	for _, test := range []struct {
		err  fault.Error
		want string
	}{
		{full, "bucket b: EOF: try again"},
		{fault.Error{Kind: fault.Denied, Object: "bucket b"}, "bucket b: denied"},
		{fault.Error{Kind: fault.Denied, Cause: io.EOF}, "EOF"},
	} {
		if test.err.Error() != test.want {
			t.Errorf("got %q, want %q", test.err.Error(), test.want)
		}
	}
	err := fmt.Errorf("check: %w", &full)
	if !errors.Is(err, io.EOF) || !errors.Is(err, fault.Denied) || fault.RemedyOf(err) != "try again" {
		t.Errorf("%v has lost its cause, kind or remedy", err)
	}
}

func TestSentinelsOfOneKindDiffer(t *testing.T) {
	other := fault.New(fault.NotFound, "away")
	if errors.Is(errGone, other) || !errors.Is(errGone, fault.New(fault.NotFound, "gone")) {
		t.Error("a sentinel is not matched by its kind and text")
	}
}

func TestPackedErrorKeepsItsIdentity(t *testing.T) {
	err := fmt.Errorf("a: %w", errors.Join(&fault.Error{Kind: fault.Usage, Cause: io.EOF, Remedy: "try b"}, errGone, context.Canceled))
	encoded, failed := json.Marshal(fault.Pack(err))
	if failed != nil {
		t.Fatal(failed)
	}
	var p fault.Packed
	failed = json.Unmarshal(encoded, &p)
	if failed != nil {
		t.Fatal(failed)
	}
	got := p.Err()
	for _, want := range []error{errGone, fault.Usage, fault.NotFound} {
		if !errors.Is(got, want) {
			t.Errorf("the error does not match %v", want)
		}
	}
	if got.Error() != err.Error() || fault.RemedyOf(got) != "try b" || errors.Is(got, fault.Refused) {
		t.Errorf("got %v with remedy %q", got, fault.RemedyOf(got))
	}
	interrupted := fault.Pack(fmt.Errorf("wait: %w", context.Canceled)).Err()
	if !errors.Is(interrupted, context.Canceled) || fault.KindOf(interrupted) != fault.Interrupted {
		t.Errorf("%v is no interruption", interrupted)
	}
}
