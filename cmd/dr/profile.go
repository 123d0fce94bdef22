//go:build profile

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
)

// profile writes a CPU profile of this process into the folder that DR_PROFILE names, until end is called. make bench builds dr so.
func profile() (end func()) {
	file, err := os.Create(filepath.Join(os.Getenv("DR_PROFILE"), fmt.Sprintf("%d.pprof", os.Getpid())))
	if err == nil {
		err = pprof.StartCPUProfile(file)
	}
	if err != nil {
		panic(err)
	}
	return pprof.StopCPUProfile
}
