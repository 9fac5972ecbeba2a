package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	provider "go.miloapis.com/milo/pkg/multicluster-runtime/milo"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"mica.dev/compat/claim"
	"mica.dev/compat/greeter"
)

const (
	engaged = "engaged"
	letGo   = "let go"
)

// fleet is a controller over all projects, and what its provider did.
type fleet struct {
	name string
	// address is where a project has to be found.
	address func(project string) string
	// kind is what says that a project is ready.
	kind    string
	manager mcmanager.Manager
	greeter *greeter.Greeter

	lock    sync.Mutex
	history map[string][]string
}

// external finds projects by their Projects, and reaches them at paths of the server.
func external(ctx context.Context, config *rest.Config) (*fleet, error) {
	f := &fleet{name: "external", kind: projectKind}
	f.address = func(project string) string {
		return config.Host + "/apis/resourcemanager.miloapis.com/v1alpha1/projects/" + project + "/control-plane"
	}
	return f, f.begin(ctx, config, provider.Options{})
}

// internal finds projects by their ProjectControlPlanes, and reaches them at hosts of their own.
func internal(ctx context.Context, config, inside *rest.Config) (*fleet, error) {
	f := &fleet{name: "internal", kind: controlPlaneKind}
	f.address = func(project string) string {
		return "https://milo-apiserver.project-" + project + ".svc.cluster.local:6443"
	}
	return f, f.begin(ctx, config, provider.Options{InternalServiceDiscovery: true, ProjectRestConfig: inside})
}

// begin starts two managers, as Milo's own services do: one that follows the projects, one for what is in them.
func (f *fleet) begin(ctx context.Context, config *rest.Config, options provider.Options) error {
	f.history = map[string][]string{}
	if options.ProjectRestConfig == nil {
		options.ProjectRestConfig = config
	}
	options.ProjectRestConfig = rest.CopyConfig(options.ProjectRestConfig)
	options.ProjectRestConfig.UserAgent = f.agent()
	options.ControllerName = f.name
	quiet := metricsserver.Options{BindAddress: "0"}
	// What the provider reads, it reads as the kind that it watches: unstructured.
	read := client.Options{Cache: &client.CacheOptions{Unstructured: true}}
	discovery, err := manager.New(config, manager.Options{Metrics: quiet, Client: read})
	if err != nil {
		return err
	}
	milo, err := provider.New(discovery, options)
	if err != nil {
		return err
	}
	if f.manager, err = mcmanager.New(config, &recorded{milo, f}, manager.Options{Metrics: quiet}); err != nil {
		return err
	}
	if f.greeter, err = greeter.New("greeter-"+f.name, f.manager); err != nil {
		return err
	}
	for _, run := range []func(context.Context) error{discovery.Start, f.manager.Start} {
		go func() {
			if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				fmt.Fprintln(os.Stderr, "a manager ended:", err)
			}
		}()
	}
	return nil
}

// agent is how the fleet is called in the server's records.
func (f *fleet) agent() string {
	return "milo-" + f.name
}

// recorded is Milo's provider, whose engagements are written down.
type recorded struct {
	*provider.Provider
	fleet *fleet
}

// Start hands the provider somebody to engage with who writes it down.
func (r *recorded) Start(ctx context.Context, aware multicluster.Aware) error {
	return r.Provider.Start(ctx, &recorder{aware, r.fleet})
}

type recorder struct {
	multicluster.Aware
	fleet *fleet
}

// Engage is told of every project that comes; that one goes is told by the end of its context.
func (r *recorder) Engage(ctx context.Context, name multicluster.ClusterName, cluster cluster.Cluster) error {
	if err := r.Aware.Engage(ctx, name, cluster); err != nil {
		return err
	}
	if at, wanted := cluster.GetConfig().Host, r.fleet.address(name.String()); at != wanted {
		return fmt.Errorf("%s is engaged at %s, not at %s", name, at, wanted)
	}
	r.fleet.note(name.String(), engaged)
	context.AfterFunc(ctx, func() { r.fleet.note(name.String(), letGo) })
	return nil
}

func (f *fleet) note(project, what string) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.history[project] = append(f.history[project], what)
}

// saw is what happened to a project, as the provider told it.
func (f *fleet) saw(project string) []string {
	f.lock.Lock()
	defer f.lock.Unlock()
	return slices.Clone(f.history[project])
}

// until waits until a project's history is as long as this, and sees that it is this.
func (f *fleet) until(ctx context.Context, project string, wanted ...string) error {
	return claim.Until(ctx, func() error {
		saw := f.saw(project)
		if !slices.Equal(saw, wanted) {
			return fmt.Errorf("%s: it was %q, wanted was %q", f.name, strings.Join(saw, ", "), strings.Join(wanted, ", "))
		}
		return nil
	})
}
