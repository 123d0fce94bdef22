package restore

// NewObstacle is how a run ends that meets o.
func NewObstacle(o Obstacle, err error) error { return &ObstacleError{o, err} }
