// Command clientgo checks a server with client-go as controllers use it: typed protobuf clients, informers with streaming
// lists, paging, leases. It prints one line for each claim, `ok` or `FAIL` with the reason, and ends with 1 if one failed.
package main

import (
	"context"
	"flag"
	"fmt"

	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"mica.dev/compat/claim"
)

// clients are what a claim has at hand; the namespace is its own.
type clients struct {
	config    *rest.Config
	typed     kubernetes.Interface
	dynamic   dynamic.Interface
	metadata  metadata.Interface
	namespace string
}

// sentence is a claim about the server, and the function that tries it in a namespace of its own.
type sentence struct {
	says string
	try  func(context.Context, clients) error
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the server to check")
	flag.Parse()
	c, err := connect(*kubeconfig)
	if err != nil {
		claim.Impossible(fmt.Errorf("connect: %w", err))
	}
	var claims []claim.Claim
	for _, sentence := range append(objectClaims, watchClaims...) {
		claims = append(claims, claim.Claim{Says: sentence.says, Try: func(ctx context.Context) error { return sentence.attempt(ctx, c) }})
	}
	claim.All(context.Background(), claims)
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

// attempt gives a claim a namespace.
func (s sentence) attempt(ctx context.Context, c clients) error {
	c.namespace = "client-go-" + rand.String(6)
	if err := createNamespace(ctx, c); err != nil {
		return fmt.Errorf("create a namespace: %w", err)
	}
	return s.try(ctx, c)
}
