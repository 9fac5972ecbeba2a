// Command etcd is upstream's etcd, built from its published module: distributions ship versions years old.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
