package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/etcd-dr/etcd-dr/restore/child"
	"github.com/etcd-dr/etcd-dr/restore/plan"
	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/records"
	"github.com/etcd-dr/etcd-dr/storage/repository"
	"github.com/etcd-dr/etcd-dr/storage/seal"
	"github.com/etcd-dr/etcd-dr/storage/sign"
	"github.com/etcd-dr/etcd-dr/storage/stores"
)

// Source is where a child finds the backup, and the keys that open it. It goes through a pipe and is stored nowhere.
type Source struct {
	Repository  string         `json:"repository,omitempty"` // URL
	Options     stores.Options `json:"options,omitzero"`
	Cluster     string         `json:"cluster,omitempty"`
	Trust       []string       `json:"trust,omitempty"` // public keys, one of which must have signed what is read
	Identities  []string       `json:"identities,omitempty"`
	Passphrases []string       `json:"passphrases,omitempty"`
}

// NewSource describes a repository, whom to trust and the keys to a child.
func NewSource(url string, o stores.Options, cluster string, trust sign.Trust, keys seal.Keys) Source {
	s := Source{Repository: url, Options: o, Cluster: cluster, Trust: trust.Keys()}
	s.Identities, s.Passphrases = keys.Secrets()
	return s
}

// Open is the child's side of NewSource.
func (s Source) Open(ctx context.Context) (*repository.Cluster, seal.Keys, error) {
	keys, err := s.keys()
	if err != nil || s.Repository == "" {
		return nil, keys, err
	}
	trust, err := sign.ParseTrust(s.Trust...)
	if err != nil {
		return nil, seal.Keys{}, err
	}
	bucket, err := stores.Open(ctx, s.Repository, s.Options)
	if err != nil {
		return nil, seal.Keys{}, err
	}
	c, err := repository.OpenWith(bucket, s.Cluster, records.Policy{Trust: trust})
	return c, keys, err
}

func (s Source) keys() (keys seal.Keys, err error) {
	if len(s.Identities) > 0 {
		if keys, err = seal.ParseKeys(strings.NewReader(strings.Join(s.Identities, "\n"))); err != nil {
			return seal.Keys{}, err
		}
	}
	for _, passphrase := range s.Passphrases {
		key, err := seal.Passphrase(passphrase)
		if err != nil {
			return seal.Keys{}, err
		}
		keys = keys.And(key)
	}
	return keys, nil
}

// ChildVerb is the verb under which a child serves Spawn: see Serve.
const ChildVerb = "restore"

type job struct {
	Plan   plan.Plan `json:"plan"`
	Source Source    `json:"source"`
}

// Spawn is Run in a child process: a database that ends the process there is an error here, which matches
// repository.ErrDamaged and names the stage. Whatever the child left is taken away.
func Spawn(ctx context.Context, p plan.Plan, s Source, report storage.Report) (Result, error) {
	if err := p.Validate(); err != nil {
		return Result{}, err
	}
	var a answer
	err := child.Run(ctx, ChildVerb, job{p, s}, &a, report)
	if err != nil {
		removeDead(p)
		return Result{}, asObstacle(p, Died(err))
	}
	return a.Result, a.Met.Err()
}

// answer is the child's answer: a result, or an obstacle.
type answer struct {
	Result Result `json:"result"`
	Met    *Met   `json:"met,omitempty"`
}

// removeDead clears the work dirs of a child that died. One that a live process holds belongs to that.
func removeDead(p plan.Plan) {
	targets := []string{p.Into.Target()}
	if p.Into.WALDir != "" {
		targets = append(targets, p.Into.WALDir)
	}
	for _, target := range targets {
		w, err := newWork(target, p.ID)
		if err != nil {
			continue
		}
		_ = w.clearStale(0, nil) // a lock ends with its process, and the child's has ended
	}
}

// Died makes a finding of a child's death, where that is one.
func Died(err error) error {
	dead, ok := errors.AsType[*child.DiedError](err)
	if !ok || dead.Killed {
		return err
	}
	return Blame(dead.Stage, dead.Words)
}

// Serve is Spawn's other side, for the child's main.
func Serve(ctx context.Context, input []byte, report storage.Report) (any, error) {
	var j job
	if err := json.Unmarshal(input, &j); err != nil {
		return nil, fmt.Errorf("read the job: %w", err)
	}
	c, keys, err := j.Source.Open(ctx)
	if err != nil {
		return nil, err
	}
	debug.SetGCPercent(200) // this process has one job: a replay spends a quarter of its time on collecting otherwise
	result, err := Run(ctx, j.Plan, c, keys, report)
	met := Meet(err)
	if met != nil {
		return answer{Met: met}, nil
	}
	return answer{Result: result}, err
}
