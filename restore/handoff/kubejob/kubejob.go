// Package kubejob has the parts that all Jobs of dr on Kubernetes share: the repository with its Secrets, the limits of the container,
// and the reasons for which a Job does not end well. It is pure.
package kubejob

import (
	"fmt"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Resources returns the requests and limits of a container that may use this memory in bytes. It requests no ephemeral storage: some
// nodes report none, and would never run the pod. Under pressure on the node's disk the pod is evicted first.
func Resources(memory resource.Quantity) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: memory},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: memory},
	}
}

// Confine sets the fields of a container's context that the Pod Security standard "restricted" demands, apart from its user.
func Confine(c *corev1.SecurityContext) {
	c.AllowPrivilegeEscalation, c.ReadOnlyRootFilesystem = new(false), new(true)
	c.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
}

// Literal returns arguments with each $ doubled: Kubernetes expands $(NAME) and $$.
func Literal(args []string) []string {
	literal := make([]string, len(args))
	for i, arg := range args {
		literal[i] = strings.ReplaceAll(arg, "$", "$$")
	}
	return literal
}

// Ended returns the condition with which no pod of job will run any more; nil: job has not ended.
func Ended(job *batchv1.Job) *batchv1.JobCondition {
	for i, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return &job.Status.Conditions[i]
		}
	}
	return nil
}

// Reason returns why a pod does not run, or how it has ended; "" if that is unknown.
func Reason(pod corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		switch s := c.State; {
		case s.Waiting != nil && s.Waiting.Reason != "":
			return joined(s.Waiting.Reason, s.Waiting.Message)
		case s.Terminated != nil && pod.Status.Reason == "":
			return joined(fmt.Sprintf("exit code %d, %s", s.Terminated.ExitCode, s.Terminated.Reason), s.Terminated.Message)
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return joined(c.Reason, c.Message)
		}
	}
	return joined(pod.Status.Reason, pod.Status.Message)
}

// joined returns a reason and, after a colon, the last line of its message, which may be the end of a log.
func joined(reason, message string) string {
	lines := strings.Split(strings.TrimSpace(message), "\n")
	if lines[len(lines)-1] == "" {
		return reason
	}
	return reason + ": " + lines[len(lines)-1]
}
