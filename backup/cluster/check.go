package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/etcd-dr/etcd-dr/storage"
	"github.com/etcd-dr/etcd-dr/storage/check"
)

// CheckOptions configure Check.
type CheckOptions struct {
	NoHash bool      // do not compare the members' hashes: hashing stalls a member's writes, see HashKV
	Quick  bool      // do not open a snapshot; for callers that take backups, which test this anyway
	Now    time.Time // the time against which the expiry of certificates is checked
	// RenewBefore is how long before it expires a certificate should have been renewed; at least 30 days.
	RenewBefore time.Duration
}

// checked is the state of one Check.
type checked struct {
	*Cluster // nil if no member answers
	cfg      Config
	o        CheckOptions
	report   storage.Report
}

// checkSteps are the checks of a cluster. The offline ones run even if no member answers.
var checkSteps = []struct {
	name    string
	offline bool
	run     func(*checked, context.Context) check.Line
}{
	{"server certificates", true, (*checked).serverCertificates},
	{"client certificate", true, (*checked).clientCertificate},
	{"quorum and leader", false, (*checked).quorum},
	{"alarms", false, (*checked).noAlarms},
	{"one version", false, (*checked).oneVersion},
	{"database size", false, (*checked).size},
	{"members in step", false, (*checked).inSync},
	{"users", false, (*checked).users},
	{"can take snapshots", false, (*checked).snapshots},
	{"HashKV equal", false, (*checked).equal},
}

// Check checks everything that a backup of the cluster needs. It returns one line for each check, always in the same
// order, and changes nothing.
func Check(ctx context.Context, cfg Config, o CheckOptions, report storage.Report) []check.Line {
	const answers = "endpoints answer"
	report.Say(storage.Event{Stage: "check", Message: "checking", Object: answers})
	c, err := Connect(ctx, cfg)
	if err == nil {
		defer c.Close()
	}
	state := &checked{Cluster: c, cfg: cfg, o: o, report: report}
	lines := []check.Line{withName(answers, state.answers(err))}
	for _, step := range checkSteps {
		report.Say(storage.Event{Stage: "check", Message: "checking", Object: step.name})
		l := found(check.NotRun, "", "interrupted")
		switch {
		case ctx.Err() != nil:
		case c == nil && !step.offline:
			l = found(check.NotRun, "", "%q failed", answers)
		default:
			l = step.run(state, ctx)
		}
		lines = append(lines, withName(step.name, l))
	}
	return lines
}

// found returns a line with the formatted text as Seen.
func found(v check.Verdict, cure, format string, args ...any) check.Line {
	return check.Line{Verdict: v, Seen: fmt.Sprintf(format, args...), Cure: cure}
}

func withName(name string, l check.Line) check.Line {
	l.Name = name
	return l
}

// answers returns the line about Connect's result. Members that have never been started have no URL and so are not in
// c.Silent.
func (c *checked) answers(err error) check.Line {
	const cure = "start these members, or correct --endpoints, --cacert, --cert and --key"
	if err != nil {
		return found(check.Wanting, cure, "%v", err)
	}
	var silent []string
	for _, s := range c.Silent {
		silent = append(silent, fmt.Sprintf("%s: %v", s.Endpoint, s.Err))
	}
	for _, m := range c.Members {
		if len(m.ClientURLs) == 0 && !c.answered(m.ID) {
			silent = append(silent, fmt.Sprintf("member %s has never been started", m.ID))
		}
	}
	if len(silent) > 0 {
		return found(check.Wanting, cure, "%s", strings.Join(silent, "; "))
	}
	return found(check.OK, "", "%d of %d members", len(c.Servers), len(c.Members))
}

func (c *checked) quorum(context.Context) check.Line {
	const cure = "bring members back until a majority runs; until then dr backup marks its backups as no-quorum"
	if !c.Quorum {
		l := found(check.Wanting, cure, "linearizable reads fail: there is no quorum")
		l.Problem = check.NoQuorum
		return l
	}
	voters := 0
	for _, m := range c.Members {
		if !m.Learner {
			voters++
		}
	}
	answering := len(c.voters())
	leader := c.Leader()
	if leader == nil {
		return found(check.Wanting, "name its endpoint too", "there is a quorum, but its leader does not answer at the given endpoints")
	}
	return found(check.OK, "", "%s leads, %d of %d voting members answer, and %d more may fail",
		leader.Endpoint, answering, voters, max(0, answering-voters/2-1))
}

func (c *checked) noAlarms(ctx context.Context) check.Line {
	names, err := c.Alarms(ctx)
	switch {
	case err != nil:
		return found(check.Unknown, "", "%v", err)
	case slices.Contains(names, "CORRUPT"):
		l := found(check.Wanting, "find the member whose HashKV differs and replace it, before any other step",
			"alarms: %s", strings.Join(names, ", "))
		l.Problem = check.Corrupt
		return l
	case len(names) > 0:
		return found(check.Wanting, "compact and defragment, then etcdctl alarm disarm",
			"alarms: %s", strings.Join(names, ", "))
	}
	return found(check.OK, "", "none")
}

func (c *checked) oneVersion(context.Context) check.Line {
	all := c.versions()
	if len(all) > 1 {
		return found(check.Wanting, "finish the upgrade: a cluster should not run mixed versions for more than a few hours", "%s", strings.Join(all, " and "))
	}
	return found(check.OK, "", "%s", all[0])
}

// fullAt is the fraction of the quota above which size reports a problem.
const fullAt = 0.8

// size checks each member's own database, because members are defragmented one by one. Servers before 3.6 do not report
// their quota.
func (c *checked) size(context.Context) check.Line {
	var largest int64
	var fullest *Server
	share := func(s *Server) float64 { return float64(s.Status.DbSize) / float64(s.Status.DbSizeQuota) }
	for _, s := range c.Servers {
		largest = max(largest, s.Status.DbSize)
		if s.Status.DbSizeQuota > 0 && (fullest == nil || share(s) > share(fullest)) {
			fullest = s
		}
	}
	if fullest == nil {
		return found(check.Unknown, "", "%d bytes; these servers do not report their quota, which 3.6 and later do", largest)
	}
	size, part := fullest.Status.DbSize, share(fullest)
	if part > fullAt {
		return found(check.Wanting, "compact and defragment, or raise --quota-backend-bytes",
			"%d bytes, %.0f%% of the quota: at 100%% etcd accepts no more writes", size, 100*part)
	}
	return found(check.OK, "", "%d bytes, %.0f%% of the quota", size, 100*part)
}

// inSync checks that no member lags. At any moment some member does, so each gets a little time to catch up.
func (c *checked) inSync(ctx context.Context) check.Line {
	var goal uint64
	for _, s := range c.Servers {
		goal = max(goal, s.Status.RaftAppliedIndex)
	}
	var late, learners []string
	for _, s := range c.Servers {
		lag, err := s.lag(ctx, goal)
		if err != nil {
			late = append(late, err.Error())
		} else if lag > 0 {
			late = append(late, fmt.Sprintf("%s lags by %d entries", s.Endpoint, lag))
		}
		if s.Status.IsLearner {
			learners = append(learners, s.Endpoint)
		} else if c.Quorum && !s.ReachesLeader {
			late = append(late, s.Endpoint+" is cut off from its leader")
		}
	}
	switch {
	case len(late) > 0:
		return found(check.Wanting, "check these members' disk and network", "%s", strings.Join(late, "; "))
	case len(learners) > 0:
		return found(check.Note, "promote each when it has caught up: a learner has no vote, and no backup is taken from it",
			"learners: %s", strings.Join(learners, ", "))
	}
	return found(check.OK, "", "all have applied entry %d", goal)
}

// lag returns how many entries the member is behind goal, after waiting for up to catchUp.
func (s *Server) lag(ctx context.Context, goal uint64) (uint64, error) {
	for end := time.Now().Add(catchUp); ; {
		status, err := s.Now(ctx)
		switch {
		case err != nil:
			return 0, err
		case status.RaftAppliedIndex >= goal:
			return 0, nil
		case time.Now().After(end):
			return goal - status.RaftAppliedIndex, nil
		}
		err = storage.Sleep(ctx, catchUpPause)
		if err != nil {
			return 0, err
		}
	}
}

func (c *checked) users(ctx context.Context) check.Line {
	s := c.preferred()
	if s == nil {
		return found(check.NotRun, "", "only learners answer")
	}
	enabled, err := s.AuthEnabled(ctx)
	switch {
	case err != nil && enabled:
		return found(check.OK, "", "authentication is enabled")
	case err != nil:
		return found(check.Unknown, "", "%v", err)
	case enabled:
		return found(check.OK, "", "authentication is enabled")
	case c.cfg.Cert != "" && c.cfg.encrypts(s.Endpoint):
		return found(check.OK, "", "authentication is disabled: any client certificate may read and write everything")
	}
	return found(check.Note, "enable authentication (etcdctl auth enable), or require client certificates",
		"authentication is disabled: any client that reaches the port may read and write everything")
}

// firstMessage is how long a member may take to send the first bytes of a snapshot.
const firstMessage = 30 * time.Second

func (c *checked) snapshots(ctx context.Context) check.Line {
	if c.o.Quick {
		return found(check.NotRun, "", "each backup tests this")
	}
	s := c.preferred()
	if s == nil {
		return found(check.Wanting, "name a voting member in --endpoints", "only learners answer, and no backup is taken from a learner")
	}
	snapshot, err := s.Snapshot(ctx, firstMessage)
	if err != nil {
		return found(check.Wanting, "use a user with the role root, or a client certificate whose CN is such a user", "%v", err)
	}
	snapshot.Close()
	return found(check.OK, "", "%s has begun to send one", s.Endpoint)
}

// preferred returns the member for a check: the leader (as for a backup), else a voting member that is not cut off, else any voting
// member. It returns nil if only learners answer.
func (c *checked) preferred() *Server {
	voters := c.voters()
	leader := c.Leader()
	if leader != nil {
		return leader
	}
	i := slices.IndexFunc(voters, func(s *Server) bool { return s.ReachesLeader })
	if i >= 0 {
		return voters[i]
	}
	if len(voters) > 0 {
		return voters[0]
	}
	return nil
}

func (c *checked) voters() []*Server {
	return slices.DeleteFunc(slices.Clone(c.Servers), func(s *Server) bool { return s.Status.IsLearner })
}

func (c *checked) equal(ctx context.Context) check.Line {
	const cure = "the members have different data: find out which is right and replace the others before any other step"
	from := c.preferred()
	few := len(c.Servers) < 2 || from == nil
	if few && !c.o.NoHash {
		return found(check.NotRun, "", "fewer than two members answer")
	}
	a := c.CompareRevisions(ctx)
	if a.Difference != "" {
		return found(check.Wanting, cure, "%s", a.Difference)
	}
	if c.o.NoHash {
		return found(check.NotRun, "", "--no-hash: only the revisions of the members that answer were compared")
	}
	difference, skipped, err := c.Compare(ctx, from, Unlimited(), c.report)
	if errors.Is(err, ErrMixedVersions) {
		return found(check.NotRun, "", "%v", err)
	}
	err = errors.Join(append(skipped, err)...)
	if difference == "" && err != nil {
		return found(check.Unknown, "", "not all were compared: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if difference != "" {
		return found(check.Wanting, cure, "%s", difference)
	}
	return found(check.OK, "", "%d members have the same HashKV", len(c.Servers))
}
