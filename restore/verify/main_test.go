package verify_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/verify"
	"github.com/etcd-dr/etcd-dr/storage"
)

// TestMain is also the main function of the child, since Run starts this binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == child.Argument {
		err := child.Serve(context.Background(), serve, os.Stdin, os.Stdout)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // under -race a child would wait a second before it ends
	os.Exit(m.Run())
}

// accident names a fault of the child and its stage: "kill prove".
const accident = "ETCD_DR_VERIFY_TEST_ACCIDENT"

// serve is verify.Serve with the accident that the test selected.
func serve(ctx context.Context, input []byte, report storage.Report) (any, error) {
	kind, stage, _ := strings.Cut(os.Getenv(accident), " ")
	return verify.Serve(ctx, input, func(e storage.Event) {
		report(e)
		switch {
		case e.Stage != stage:
		case kind == "kill":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		case kind == "panic":
			go panic("a page is not what it was")
			select {}
		}
	})
}
