// Command clientgo checks a server with client-go as controllers use it: typed protobuf clients, informers with streaming
// lists, paging, leases. It prints one line for each claim, `ok` or `FAIL` with the reason, and ends with 1 if one failed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// claimSeconds bounds every claim: a healthy server needs milliseconds for each.
const claimSeconds = 60

// clients are what a claim has at hand; the namespace is its own.
type clients struct {
	config    *rest.Config
	typed     kubernetes.Interface
	dynamic   dynamic.Interface
	metadata  metadata.Interface
	namespace string
}

// claim is a sentence about the server and the function that tries it.
type claim struct {
	says string
	try  func(context.Context, clients) error
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the server to check")
	flag.Parse()
	c, err := connect(*kubeconfig)
	if err != nil {
		fmt.Println("FAIL connect:", err)
		os.Exit(1)
	}
	failed := false
	for _, claim := range append(objectClaims, watchClaims...) {
		if err := attempt(claim, c); err != nil {
			failed = true
			fmt.Printf("FAIL %s: %v\n", claim.says, err)
			continue
		}
		fmt.Println("ok", claim.says)
	}
	if failed {
		os.Exit(1)
	}
}

func connect(kubeconfig string) (clients, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return clients{}, err
	}
	config.QPS, config.Burst = 1000, 1000
	plain := rest.CopyConfig(config)
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return clients{
		config:   config,
		typed:    kubernetes.NewForConfigOrDie(config),
		dynamic:  dynamic.NewForConfigOrDie(plain),
		metadata: metadata.NewForConfigOrDie(config),
	}, nil
}

// attempt gives a claim a namespace and a bounded time.
func attempt(claim claim, c clients) error {
	ctx, cancel := context.WithTimeout(context.Background(), claimSeconds*time.Second)
	defer cancel()
	c.namespace = "client-go-" + rand.String(6)
	if err := createNamespace(ctx, c); err != nil {
		return fmt.Errorf("create a namespace: %w", err)
	}
	return claim.try(ctx, c)
}
