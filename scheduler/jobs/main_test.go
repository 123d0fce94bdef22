package jobs_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/verify"
)

// TestMain is also the main function of the child of a drill, which starts this binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == child.Argument {
		err := child.Serve(context.Background(), verify.Serve, os.Stdin, os.Stdout)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
