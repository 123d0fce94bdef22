package deploy

import (
	"regexp"
	"slices"
	"testing"
)

// served are the metrics of dr serve and dr archive.
var served = []string{
	"etcd_dr_archive_bytes_total",
	"etcd_dr_archive_durable_position",
	"etcd_dr_archive_gaps_total",
	"etcd_dr_archive_pending_bytes",
	"etcd_dr_archive_pending_requests",
	"etcd_dr_archive_purge_headroom_seconds",
	"etcd_dr_archive_requests_total",
	"etcd_dr_archive_rpo_seconds",
	"etcd_dr_archive_segments_total",
	"etcd_dr_archive_store_failures_total",
	"etcd_dr_archive_unlinked_bytes",
	"etcd_dr_archive_working",
	"etcd_dr_backup_due_timestamp_seconds",
	"etcd_dr_backup_last_size_bytes",
	"etcd_dr_backup_last_stored_bytes",
	"etcd_dr_backup_last_success_timestamp_seconds",
	"etcd_dr_backup_last_verified_timestamp_seconds",
	"etcd_dr_backups",
	"etcd_dr_backups_stored_bytes",
	"etcd_dr_build_info",
	"etcd_dr_cluster_state",
	"etcd_dr_cluster_suspended",
	"etcd_dr_condition",
	"etcd_dr_config_loaded_timestamp_seconds",
	"etcd_dr_config_refused",
	"etcd_dr_drill_last_run_timestamp_seconds",
	"etcd_dr_drill_last_success_timestamp_seconds",
	"etcd_dr_drill_rto_seconds",
	"etcd_dr_job_last_duration_seconds",
	"etcd_dr_job_running",
	"etcd_dr_jobs_total",
	"etcd_dr_log_gaps",
	"etcd_dr_recovery_window_end_timestamp_seconds",
	"etcd_dr_recovery_window_start_timestamp_seconds",
	"etcd_dr_rpo_seconds",
}

var metricName = regexp.MustCompile(`\betcd_dr_[a-z0-9_]+`)

// wantMetrics fails the test unless text names metrics, and only such as are served. A misspelt one is no error to
// Prometheus: the alert on it is silent for ever.
func wantMetrics(t *testing.T, where, text string) {
	t.Helper()
	names := metricName.FindAllString(text, -1)
	if len(names) == 0 {
		t.Errorf("%s names no metric", where)
	}
	for _, name := range names {
		if !slices.Contains(served, name) {
			t.Errorf("%s: nothing serves %s", where, name)
		}
	}
}
