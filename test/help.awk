# Prints the groups (##@) and the commented targets (##) of a Makefile.
BEGIN { FS = ":.*## " }
/^##@ / { printf "\n%s\n", substr($0, 5) }
/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $1, $2 }
