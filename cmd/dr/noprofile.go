//go:build !profile

package main

// profile returns a function without effect: only a dr of make bench writes profiles.
func profile() (end func()) { return func() {} }
