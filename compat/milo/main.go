// Command milo runs controllers on multicluster-runtime with Milo's own provider, unmodified, over the projects of a server: one
// that finds them by their Projects, one by their ProjectControlPlanes. Hundreds of projects come, are suspended and lifted, and
// go, all at once; what either controller saw is then compared with what the server says happened. It prints one line for each
// claim, `ok` or `FAIL` with the reason, and ends with 1 if one failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"mica.dev/compat/claim"
)

const (
	organization = "acme"
	// staying is how many projects are there from the beginning to the end, while the others come and go.
	staying = 20
)

// world is what the claims have at hand.
type world struct {
	config *rest.Config
	// root is the platform, and view what the organization sees of it, where projects are made.
	root, view client.Client
	fleets     []*fleet
	told       *told
	audit      string
	lives      []string
	stay       []string
}

func main() {
	// controller-runtime has a flag of the same name in the usual set.
	flags := flag.NewFlagSet("milo", flag.ExitOnError)
	root := flags.String("kubeconfig", "", "the server, at root")
	audit := flags.String("audit", "", "the server's audit log, with every watch of ConfigMaps")
	projects := flags.Int("projects", 200, "how many projects come and go")
	if err := flags.Parse(os.Args[1:]); err != nil {
		os.Exit(2)
	}
	log.SetLogger(logr.Discard())
	// Informers log every watch that a suspension ends.
	klog.SetLogger(logr.Discard())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w, err := begin(ctx, *root, *audit, *projects)
	if err != nil {
		claim.Impossible(fmt.Errorf("the managers start: %w", err))
	}
	claim.All(ctx, []claim.Claim{
		{Says: "both discoveries engage the projects that are there, each at its address", Try: w.engages},
		{Says: "hundreds of projects come, are suspended and lifted, and go, and both follow each", Try: w.lived, Within: 4 * time.Minute},
		{Says: "what both saw is what happened: each project was engaged and let go once for every time", Try: w.agrees},
		{Says: "the server saw a watch for every engagement, and none that outlived it", Try: w.watched},
		{Says: "those that stayed were never let go, and are still looked after", Try: w.stays},
		{Says: "a project that is made again under its name is engaged anew, and empty", Try: w.returns},
	})
}

func begin(ctx context.Context, root, audit string, projects int) (*world, error) {
	config, err := clientcmd.BuildConfigFromFlags("", root)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	w := &world{config: config, audit: audit, lives: names("comes", projects), stay: names("stays", staying)}
	if w.root, err = client.New(config, client.Options{}); err != nil {
		return nil, err
	}
	if w.view, err = w.at("/apis/resourcemanager.miloapis.com/v1alpha1/organizations/" + organization + "/control-plane"); err != nil {
		return nil, err
	}
	if w.told, err = listen(ctx, config); err != nil {
		return nil, err
	}
	here, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	inside := rest.CopyConfig(config)
	// As the cluster's DNS would: every project's service leads to this server, which is told by the name what is meant.
	inside.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, here.Host)
	}
	for _, start := range []func() (*fleet, error){
		func() (*fleet, error) { return external(ctx, config) },
		func() (*fleet, error) { return internal(ctx, config, inside) },
	} {
		fleet, err := start()
		if err != nil {
			return nil, err
		}
		w.fleets = append(w.fleets, fleet)
	}
	return w, nil
}

// at is a client of a path of the server.
func (w *world) at(path string) (client.Client, error) {
	config := rest.CopyConfig(w.config)
	config.Host += path
	// What is asked for here is served everywhere alike: nobody has to look it up again.
	return client.New(config, client.Options{Mapper: w.root.RESTMapper()})
}

// within is a client of a project's plane that owes nothing to the provider.
func (w *world) within(project string) (client.Client, error) {
	return w.at("/projects/" + project + "/control-plane")
}

func names(prefix string, count int) []string {
	all := make([]string, count)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%03d", prefix, i)
	}
	return all
}

// each does something for all projects at once, and says everything that went wrong.
func each(projects []string, act func(project string) error) error {
	failures := make(chan error, len(projects))
	for _, project := range projects {
		go func() {
			err := act(project)
			if err != nil {
				err = fmt.Errorf("%s: %w", project, err)
			}
			failures <- err
		}()
	}
	var all error
	for range projects {
		all = errors.Join(all, <-failures)
	}
	return all
}
