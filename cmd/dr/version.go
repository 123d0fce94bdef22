package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	etcd "go.etcd.io/etcd/api/v3/version"

	"github.com/etcd-dr/etcd-dr/api/document"
)

func (a *app) version() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version of dr and of its etcd code", Args: noArgs}
	a.outputFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		v := document.Version{Version: version(), Go: runtime.Version(), Etcd: etcd.Version}
		if a.output == "json" {
			return a.document(v)
		}
		a.printf("dr %s (%s, etcd %s)\n", v.Version, v.Go, v.Etcd)
		return nil
	}
	return cmd
}

// release is the version that deploy/build.sh gives a binary.
var release string

// version returns the release, or the module's version as stamped by the go command, or "dev" for a build from a work tree.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "dev"
	}
	return info.Main.Version
}
