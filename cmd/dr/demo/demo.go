// Package demo tells how a cluster is lost and found again.
package demo

import (
	"context"
	"errors"
	"io"
)

// Story is one run of the demo.
type Story struct {
	Keep    bool      // leave the folder
	Out     io.Writer // where the story is told
	Version string    // of dr
}

// Tell runs it.
func (s Story) Tell(context.Context) error { return errors.New("being written") }
