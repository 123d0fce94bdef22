package statefulset

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/etcd-dr/etcd-dr/restore/handoff/flags"
)

// settings are those of one member's etcd, as far as its container shows them.
type settings struct {
	flags  map[string]string // of etcd's command line, unexpanded
	env    environment
	hidden string // why flags do not show all; "": they do
}

// environment maps the variables of a container to their values; nil: the value is not known.
type environment map[string]*string

// settingsOf returns the settings of the etcd in a container of a pod.
func settingsOf(c corev1.Container, pod, namespace string) settings {
	s := settings{env: environmentOf(c, pod, namespace)}
	args, ok := etcdArgs(c)
	switch {
	case ok:
		s.flags = flags.Parse(args)
	case isCnychScript(c):
		s.flags = cnychFlags(s.env, pod, namespace)
	default:
		s.hidden = fmt.Sprintf("container %s runs %s, which is not parsed", c.Name, program(c))
	}
	if s.has("config-file") { // etcd ignores all flags and variables then
		return settings{hidden: fmt.Sprintf("etcd in container %s reads its settings from a file", c.Name)}
	}
	return s
}

// program returns the program that a container runs.
func program(c corev1.Container) string {
	command := slices.Concat(c.Command, c.Args)
	if len(command) == 0 {
		return "the program of its image"
	}
	return command[0]
}

// shells run a script: a word in their arguments that looks like etcd may be anything.
var shells = []string{"sh", "bash", "ash", "dash"}

// etcdArgs returns the arguments of the etcd that a container runs. ok is false if the container runs another program, such as a script.
// A container that names no program runs that of its image, which is taken for etcd if there are arguments for it.
func etcdArgs(c corev1.Container) (args []string, ok bool) {
	command := slices.Concat(c.Command, c.Args)
	switch {
	case len(command) == 0:
		return nil, false
	case strings.HasPrefix(command[0], "-"):
		return command, true
	case slices.Contains(shells, path.Base(command[0])):
		return nil, false
	}
	i := slices.IndexFunc(command, isEtcd)
	if i < 0 {
		return nil, false
	}
	return command[i+1:], true
}

// isEtcd reports whether a word of a command line is the program etcd.
func isEtcd(word string) bool {
	return path.Base(word) == "etcd" && !strings.ContainsAny(word, " \t\n;&|")
}

// get returns the value of a flag, or of its variable; "" if neither is set. The error is why the value is not known.
func (s settings) get(flag string) (string, error) {
	text, set := s.flags[flag]
	if set {
		return s.env.expand(text)
	}
	variable := flags.Variable(flag)
	value, set := s.env[variable]
	switch {
	case set && value == nil:
		return "", fmt.Errorf("the value of %s is not part of the StatefulSet", variable)
	case set:
		return *value, nil
	case s.hidden != "":
		return "", errors.New(s.hidden)
	}
	return "", nil
}

// has reports whether a flag or its variable has a value, known or not.
func (s settings) has(flag string) bool {
	text, err := s.get(flag)
	return text != "" || err != nil && s.hidden == ""
}

// environmentOf returns the variables of a container in a pod.
func environmentOf(c corev1.Container, pod, namespace string) environment {
	fields := map[string]string{
		"metadata.name": pod, "metadata.namespace": namespace,
		"metadata.labels['statefulset.kubernetes.io/pod-name']": pod,
		"metadata.labels['apps.kubernetes.io/pod-index']":       pod[strings.LastIndex(pod, "-")+1:],
	}
	env := environment{}
	for _, e := range c.Env {
		env[e.Name] = nil
		switch {
		case e.ValueFrom == nil:
			value, err := env.expand(e.Value)
			if err == nil {
				env[e.Name] = &value
			}
		case e.ValueFrom.FieldRef != nil:
			value, known := fields[e.ValueFrom.FieldRef.FieldPath]
			if known {
				env[e.Name] = &value
			}
		}
	}
	return env
}

// reference matches an escaped $, and a reference to a variable.
var reference = regexp.MustCompile(`\$\$|\$\([^()]*\)`)

// expand replaces references as Kubernetes does: $(NAME) by the variable's value, and $$ by $.
func (e environment) expand(text string) (string, error) {
	var err error
	expanded := reference.ReplaceAllStringFunc(text, func(found string) string {
		if found == "$$" {
			return "$"
		}
		value := e[found[2:len(found)-1]]
		if value == nil {
			err = fmt.Errorf("the value of %s in %q is not part of the StatefulSet", found, text)
			return found
		}
		return *value
	})
	if err != nil {
		return "", err
	}
	return expanded, nil
}
