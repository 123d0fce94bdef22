package plan_test

import "time"

const clusterName = "prod"

var started = time.Date(2026, 11, 21, 9, 24, 33, 0, time.UTC)
