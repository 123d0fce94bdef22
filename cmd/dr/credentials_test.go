package main

import (
	"slices"
	"strings"
	"testing"
)

// TestFoldersOf checks which credentials each of several repositories gets.
func TestFoldersOf(t *testing.T) {
	for _, test := range []struct {
		repos, folders, want string // separated by spaces; - stands for none
	}{
		{"s3://a", "", "-"},
		{"s3://a", "x", "x"},
		{"file:///a", "x", "-"},
		{"s3://a gs://b", "x", "x x"},
		{"s3://a gs://b", "x y", "x y"},
		{"s3://a file:///c gs://b", "x y", "x - y"},
		{"s3://a", "x y", ""},
		{"s3://a gs://b azblob://c", "x y", ""},
		{"file:///a", "x y", ""},
	} {
		got, err := foldersOf(strings.Fields(test.repos), strings.Fields(test.folders))
		want := strings.Split(strings.ReplaceAll(test.want, "-", ""), " ")
		if test.want == "" && (err == nil || exitCode(t.Context(), err) != exitUsage) || test.want != "" && (err != nil || !slices.Equal(got, want)) {
			t.Errorf("%s with %s: %q, %v, want %q", test.repos, test.folders, got, err, test.want)
		}
	}
}
