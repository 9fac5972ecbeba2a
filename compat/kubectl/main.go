// Command kubectl is upstream's kubectl, built from its published module, for machines that have no recent one.
package main

import (
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

func main() {
	// util.CheckErr prints errors as users know them; cli.Run alone words them differently.
	util.CheckErr(cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()))
}
