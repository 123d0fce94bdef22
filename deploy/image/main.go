// Command image writes a container image as an archive of an OCI layout, without a daemon and without a registry. Equal inputs give equal
// bytes.
//
//	image -name example.com/etcd-dr:v1 -entrypoint /usr/local/bin/dr -root linux/amd64=DIR -root linux/arm64=DIR FILE
//
// skopeo, podman, docker and containerd read the archive.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image is the image to write.
type image struct {
	name  string // with the tag
	roots []root
	v1.Config
}

// root is the root file system for a platform.
type root struct{ platform, dir string }

func main() {
	var i image
	flag.StringVar(&i.name, "name", "", "the image's name, with a tag")
	flag.StringVar(&i.User, "user", "", "the user and the group of the process, as numbers: UID:GID")
	flag.Func("entrypoint", "the program", func(s string) error { i.Entrypoint = append(i.Entrypoint, s); return nil })
	flag.Func("cmd", "an argument of the program, if the user gives none; repeatable", func(s string) error { i.Cmd = append(i.Cmd, s); return nil })
	flag.Func("label", "KEY=VALUE; repeatable", i.addLabel)
	flag.Func("root", "OS/ARCH=DIR: the root file system for a platform; repeatable", i.addRoot)
	flag.Parse()
	if i.name == "" || len(i.roots) == 0 || flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	err := i.write(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func (i *image) addLabel(s string) error {
	key, value, ok := strings.Cut(s, "=")
	if !ok {
		return errors.New("expected KEY=VALUE")
	}
	if i.Labels == nil {
		i.Labels = map[string]string{}
	}
	i.Labels[key] = value
	return nil
}

func (i *image) addRoot(s string) error {
	platform, dir, ok := strings.Cut(s, "=")
	if !ok {
		return errors.New("expected OS/ARCH=DIR")
	}
	i.roots = append(i.roots, root{platform, dir})
	return nil
}

// write writes the archive.
func (i *image) write(file string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, r := range i.roots {
		built, platform, err := i.build(r)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: built, Descriptor: v1.Descriptor{Platform: platform}})
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), "layout")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	_, tag, _ := strings.Cut(i.name[strings.LastIndex(i.name, "/")+1:], ":")
	err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": tag,    // OCI image-spec, annotations
		"io.containerd.image.name":          i.name, // containerd, docker
	}))
	if err != nil {
		return err
	}
	data, err := archive(dir)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

// build returns the image for one platform.
func (i *image) build(r root) (v1.Image, *v1.Platform, error) {
	platform, err := v1.ParsePlatform(r.platform)
	if err != nil {
		return nil, nil, err
	}
	data, err := archive(r.dir)
	if err != nil {
		return nil, nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	built, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, nil, err
	}
	file, err := built.ConfigFile()
	if err != nil {
		return nil, nil, err
	}
	file.OS, file.Architecture, file.Config = platform.OS, platform.Architecture, i.Config
	built, err = mutate.ConfigFile(built, file)
	return built, platform, err
}

// archive returns a tar archive of a folder, sorted, without times and owners.
func archive(dir string) ([]byte, error) {
	var data bytes.Buffer
	w := tar.NewWriter(&data)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		return add(w, dir, path, entry)
	})
	if err != nil {
		return nil, err
	}
	err = w.Close()
	return data.Bytes(), err
}

func add(w *tar.Writer, dir, path string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	name, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	header := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), Typeflag: tar.TypeReg, Size: info.Size()}
	if info.Mode()&fs.ModeSticky != 0 {
		header.Mode |= 0o1000
	}
	if info.IsDir() {
		header.Name, header.Typeflag, header.Size = name+"/", tar.TypeDir, 0
	}
	err = w.WriteHeader(header)
	if err != nil || info.IsDir() {
		return err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}
