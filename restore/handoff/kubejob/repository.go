package kubejob

import (
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Repository is a repository as dr opens it in a Job.
type Repository struct {
	URL         string
	Cluster     string
	Credentials string   // name of the Secret with the credentials of the store; "": the environment's
	CA          Key      // of the store
	Identity    Key      // opens encrypted backups
	SignKey     Key      // signs documents
	AllowPlain  bool     // with Identity: accept unencrypted backups too
	Limit       int64    // bytes a second from the store; 0: no limit
	Trust       []string // public keys: only objects that one of them has signed are used; none: all objects are
}

// Key is a key of a Secret. The zero Key is none.
type Key struct {
	Secret string `json:"secret"` // its name
	Name   string `json:"name"`   // of the key in Secret
}

// Dir is the folder in the container below which Jobs have their files.
const Dir = "/etc/etcd-dr"

// file is a key of a Secret that becomes the only file of a volume.
type file struct {
	volume, name string
	key          Key
}

func (f file) path() string { return path.Join(Dir, f.volume, f.name) }

func (r Repository) ca() file       { return file{"ca", "ca.crt", r.CA} }
func (r Repository) identity() file { return file{"identity", "identity", r.Identity} }
func (r Repository) sign() file     { return file{"sign", "sign.key", r.SignKey} }

func (r Repository) files() (all []file) {
	for _, f := range []file{r.identity(), r.sign(), r.ca()} {
		if f.key.Secret != "" {
			all = append(all, f)
		}
	}
	return all
}

// store is the volume with the credentials.
const store = "store"

// Args returns the flags of dr for the repository. They contain no secret: secrets are files.
func (r Repository) Args() []string {
	args := []string{"--repo=" + r.url(), "--cluster=" + r.Cluster}
	if r.Credentials != "" {
		args = append(args, "--credentials="+path.Join(Dir, store))
	}
	if r.Identity.Secret != "" {
		args = append(args, "--identity="+r.identity().path())
		if r.AllowPlain {
			args = append(args, "--allow-plain")
		}
	}
	if r.Limit > 0 {
		args = append(args, fmt.Sprintf("--limit=%dB/s", r.Limit))
	}
	if r.SignKey.Secret != "" {
		args = append(args, "--sign-key="+r.sign().path())
	}
	for _, key := range r.Trust {
		args = append(args, "--trust="+key)
	}
	return args
}

// url returns the URL of the repository, which names the file with the CA of its store if there is one.
func (r Repository) url() string {
	if r.CA.Secret == "" {
		return r.URL
	}
	separator := "?"
	if strings.Contains(r.URL, "?") {
		separator = "&"
	}
	return r.URL + separator + "ca=" + r.ca().path()
}

// Mounts returns the mounts of Volumes.
func (r Repository) Mounts() (mounts []corev1.VolumeMount) {
	if r.Credentials != "" {
		mounts = append(mounts, corev1.VolumeMount{Name: store, MountPath: path.Join(Dir, store), ReadOnly: true})
	}
	for _, f := range r.files() {
		mounts = append(mounts, corev1.VolumeMount{Name: f.volume, MountPath: path.Dir(f.path()), ReadOnly: true})
	}
	return mounts
}

// Volumes returns the volumes with the Secrets.
func (r Repository) Volumes() (volumes []corev1.Volume) {
	if r.Credentials != "" {
		volumes = append(volumes, secret(store, r.Credentials))
	}
	for _, f := range r.files() {
		volumes = append(volumes, secret(f.volume, f.key.Secret, corev1.KeyToPath{Key: f.key.Name, Path: f.name}))
	}
	return volumes
}

// secret returns a volume with the items of a Secret; without items with all of its keys.
func secret(name, secret string, items ...corev1.KeyToPath) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret, Items: items}}}
}
