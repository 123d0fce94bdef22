package controller

import (
	"strings"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/etcd-dr/etcd-dr/storage"
)

// logger returns a logger that passes the errors of Kubernetes' libraries to report. Their other messages are dropped.
func logger(report storage.Report) logr.Logger {
	errorsOnly := funcr.New(func(prefix, args string) {
		if strings.Contains(args, `"error"=`) {
			report.Say(storage.Event{Stage: "operator", Level: storage.Warning, Object: prefix, Message: args})
		}
	}, funcr.Options{})
	klog.SetLogger(errorsOnly)
	return errorsOnly
}
