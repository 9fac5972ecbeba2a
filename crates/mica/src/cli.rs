//! Every command, flag and help text.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use mica_machinery::kind;
use mica_server::start;

use crate::control_plane::args::ControlPlaneArgs;
use crate::operator::OperatorArgs;
use crate::tenant::args::{CtxArgs, OrgArgs, ProjectArgs};

/// A cloud control plane in one binary: any number of Kubernetes-style control planes, served by one process.
#[derive(Parser, Debug)]
#[command(name = "mica", version, disable_help_subcommand = true, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// Reads the command line and the environment, or says what is wrong with them and exits.
pub fn parse() -> Cli {
    let matches = without_empty(Cli::command()).get_matches();
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// A variable that is set to nothing is not set: `MICA_STORE= mica up` is how a shell takes a setting back.
fn without_empty(command: clap::Command) -> clap::Command {
    let is_empty = |name: &std::ffi::OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    command
        .mut_args(|arg| match arg.get_env().is_some_and(is_empty) {
            true => arg.env(None),
            false => arg,
        })
        .mut_subcommands(without_empty)
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Start a server
    Up(Box<UpArgs>),
    /// Run one part of the platform by itself, against servers elsewhere
    Run(Box<RunArgs>),
    /// List, create, delete, copy and enter control planes
    Plane(PlaneArgs),
    /// List, create, describe, delete and enter organizations
    Org(OrgArgs),
    /// List, create, describe, delete and enter projects
    Project(ProjectArgs),
    /// Show the tree of organizations and projects, and go to one
    Ctx(CtxArgs),
    /// List, create, describe, enter, move and delete control planes as infrastructure
    #[command(visible_alias = "cp")]
    ControlPlane(ControlPlaneArgs),
    /// Back up, restore and check the store
    Store(StoreArgs),
    /// Begin something new: a controller that compiles and passes its test
    New(NewArgs),
    /// Make what test environments start: links named kube-apiserver and etcd that lead here
    Envtest(EnvtestArgs),
    /// Serve in place of kube-apiserver, with its flags; the same as calling this program by that name
    #[command(name = "kube-apiserver", disable_help_flag = true)]
    KubeApiserver(ForeignArgs),
    /// Stand in for etcd, with its flags, before such a server; the same as calling this program etcd
    #[command(disable_help_flag = true)]
    EtcdStub(ForeignArgs),
    /// Print definitions and roles that another cluster needs before our controllers serve it
    #[command(
        after_help = "Example:\n  mica definitions control-plane | kubectl apply -f -\n  mica definitions control-plane-roles | kubectl apply -f -"
    )]
    Definitions {
        /// What is to be printed
        #[arg(value_enum)]
        what: Definitions,
    },
    /// Print a completion script for a shell
    #[command(after_help = "Example:\n  mica completion bash > /etc/bash_completion.d/mica")]
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Print the version
    Version {
        /// The form of the output
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Definitions {
    /// ControlPlane, ControlPlaneClass, ControlPlaneEndpoint and ControlPlaneRegistration
    ControlPlane,
    /// What the operator of those may do, as a ClusterRole
    ControlPlaneRoles,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Output {
    #[default]
    Table,
    Json,
    /// Only names, one per line
    Name,
}

const UP_HELP: &str = "\
Settings come from flags, then from MICA_* variables, then from the file given with --config, then from defaults.
The file is YAML with the same names, for example:

  listen: 0.0.0.0:6440
  advertise: https://mica.example:6440
  san: [mica.example]

Examples:
  mica up
  mica up --data-dir /var/lib/mica --listen 0.0.0.0:6440 --san mica.example
  mica up --store etcd://10.0.0.1:2379,10.0.0.2:2379";

/// All optional, so that what is not said here can come from the file.
#[derive(Args, Debug, Default)]
#[command(after_help = UP_HELP)]
pub struct UpArgs {
    /// Where certificates, the admin kubeconfig and the embedded store are kept [default: ./.mica]
    #[arg(long, value_name = "DIR", env = "MICA_DATA_DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where to listen; port 0 takes a free one [default: 127.0.0.1:6440]
    #[arg(long, value_name = "HOST:PORT", env = "MICA_LISTEN")]
    pub listen: Option<String>,
    /// The address that clients are told [default: https:// and the listening address]
    #[arg(long, value_name = "URL", env = "MICA_ADVERTISE")]
    pub advertise: Option<String>,
    /// One more name or address for the server's certificate; may be repeated
    #[arg(long, value_name = "NAME", env = "MICA_SAN", value_delimiter = ',')]
    pub san: Vec<String>,
    /// embedded, or etcd://HOST:PORT[,HOST:PORT…][?ca=FILE…] (etcds:// for TLS) [default: embedded]
    #[arg(long, value_name = "STORE", env = "MICA_STORE")]
    pub store: Option<String>,
    /// Which kinds are served: those of a generic control plane, or all of Kubernetes as plain data [default: generic]
    #[arg(long, value_enum, env = "MICA_PROFILE")]
    pub profile: Option<Profile>,
    /// Whether root serves organizations and projects [default: served]
    #[arg(long, value_enum, env = "MICA_TENANCY")]
    pub tenancy: Option<Tenancy>,
    /// A YAML file with the same settings
    #[arg(long, value_name = "FILE", env = "MICA_CONFIG")]
    pub config: Option<PathBuf>,
    /// error, warn, info, debug, trace, or a filter such as info,mica_server=debug [default: info]
    #[arg(long, value_name = "LEVEL", env = "MICA_LOG")]
    pub log: Option<String>,
    /// The form of log lines [default: text]
    #[arg(long, value_enum, env = "MICA_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Where log lines go, 32 MiB of them at most [default: the standard error]
    #[arg(long, value_name = "FILE", env = "MICA_LOG_FILE")]
    pub log_file: Option<PathBuf>,
    /// An EncryptionConfiguration: what is hidden in the store
    #[arg(long, value_name = "FILE", env = "MICA_ENCRYPTION_PROVIDER_CONFIG")]
    pub encryption_provider_config: Option<PathBuf>,
    /// Send traces to this OpenTelemetry collector (OTLP over HTTP), for example http://127.0.0.1:4318
    #[arg(long, value_name = "URL", env = "MICA_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,
    /// The share of requests that are traced, beside those that the client asks to be [default: 0.01]
    #[arg(long, value_name = "RATIO", env = "MICA_OTLP_SAMPLING")]
    pub otlp_sampling: Option<f64>,
    /// How long requests may take to finish at shutdown, such as 30s [default: 60s]
    #[arg(long, value_name = "DURATION", env = "MICA_DRAIN_TIMEOUT")]
    pub drain_timeout: Option<String>,
    /// A Policy of audit.k8s.io/v1 [default: writes, without what was written]
    #[arg(long, value_name = "FILE", env = "MICA_AUDIT_POLICY_FILE")]
    pub audit_policy_file: Option<PathBuf>,
    /// Where audit events are written, - being the standard output [default: audit/audit.log in the data directory]
    #[arg(long, value_name = "FILE", env = "MICA_AUDIT_LOG_PATH")]
    pub audit_log_path: Option<PathBuf>,
    /// A kubeconfig of who is sent audit events
    #[arg(long, value_name = "FILE", env = "MICA_AUDIT_WEBHOOK_CONFIG_FILE")]
    pub audit_webhook_config_file: Option<PathBuf>,
    /// Which controllers run: * for all, foo for the one of that name, -foo for all but that one, -* for none [default: *]
    #[arg(
        long,
        value_name = "NAME",
        env = "MICA_CONTROLLERS",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub controllers: Vec<String>,
    #[command(flatten)]
    pub authorization: AuthorizationArgs,
    #[command(flatten)]
    pub operator: OperatorArgs,
}

/// Who decides what is allowed; the names are kube-apiserver's.
#[derive(Args, Debug, Default, Clone)]
#[command(next_help_heading = "Authorization")]
pub struct AuthorizationArgs {
    /// An AuthorizationConfiguration: authorizers in their order [default: RBAC alone]
    #[arg(long, value_name = "FILE", env = "MICA_AUTHORIZATION_CONFIG")]
    pub authorization_config: Option<PathBuf>,
    /// Authorizers in their order, instead of such a file: RBAC, Webhook, AlwaysAllow, AlwaysDeny
    #[arg(long, value_name = "MODE", value_delimiter = ',')]
    pub authorization_mode: Vec<String>,
    /// Where the webhook of mode Webhook is: a kubeconfig
    #[arg(long, value_name = "FILE")]
    pub authorization_webhook_config_file: Option<PathBuf>,
    /// The version of SubjectAccessReview that it is sent: v1 or v1beta1 [default: v1]
    #[arg(long, value_name = "VERSION")]
    pub authorization_webhook_version: Option<String>,
    /// How long it is believed when it allows [default: 5m]
    #[arg(long, value_name = "DURATION")]
    pub authorization_webhook_cache_authorized_ttl: Option<String>,
    /// How long it is believed when it does not [default: 30s]
    #[arg(long, value_name = "DURATION")]
    pub authorization_webhook_cache_unauthorized_ttl: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    #[default]
    Generic,
    Kubernetes,
}

/// Whether there are organizations and projects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tenancy {
    #[default]
    Served,
    Absent,
}

impl From<Tenancy> for start::Tenancy {
    fn from(tenancy: Tenancy) -> Self {
        match tenancy {
            Tenancy::Served => Self::Served,
            Tenancy::Absent => Self::Absent,
        }
    }
}

impl From<Profile> for kind::Profile {
    fn from(profile: Profile) -> Self {
        match profile {
            Profile::Generic => Self::Generic,
            Profile::Kubernetes => Self::Kubernetes,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

#[derive(Args, Debug)]
pub struct NewArgs {
    #[command(subcommand)]
    pub command: NewCommand,
}

#[derive(Subcommand, Debug)]
pub enum NewCommand {
    /// Write a crate with a kind, a reconciler and a test, for every plane of a fleet
    #[command(after_help = "Example:\n  mica new controller web-shop --mica ../mica\n  cd web-shop && cargo test")]
    Controller {
        /// Words with hyphens between them; the kind is called by the same words
        name: String,
        /// Where to write it [default: a directory of that name]
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
        /// The sources of Mica to build against [default: those that this is called in]
        #[arg(long, value_name = "DIR")]
        mica: Option<PathBuf>,
    },
}

#[derive(Args, Debug)]
pub struct EnvtestArgs {
    #[command(subcommand)]
    pub command: EnvtestCommand,
}

#[derive(Subcommand, Debug)]
pub enum EnvtestCommand {
    /// Fill a directory with links, and print where it is
    #[command(after_help = "Example:\n  export KUBEBUILDER_ASSETS=$(mica envtest install ./envtest)\n  go test ./...")]
    Install {
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// The kubectl to link [default: the one on the PATH]
        #[arg(long, value_name = "FILE")]
        kubectl: Option<PathBuf>,
    },
}

/// Flags of another program, which are not ours to look at.
#[derive(Args, Debug)]
pub struct ForeignArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    pub arguments: Vec<OsString>,
}

/// Where the server is and who we are there.
#[derive(Args, Debug, Clone)]
pub struct ServerArgs {
    /// The kubeconfig to use [default: ./.mica/admin.kubeconfig, else $KUBECONFIG]
    #[arg(long, value_name = "FILE", env = "MICA_KUBECONFIG", global = true)]
    pub kubeconfig: Option<PathBuf>,
    /// The context in it [default: its current one]
    #[arg(long, value_name = "NAME", global = true)]
    pub context: Option<String>,
}

#[derive(Args, Debug)]
pub struct RunArgs {
    #[command(subcommand)]
    pub role: Role,
}

#[derive(Subcommand, Debug)]
pub enum Role {
    /// The controllers of a Kubernetes API: namespaces, garbage collection, quotas, service accounts
    #[command(
        after_help = "Examples:\n  mica run controllers --kubeconfig ./.mica/admin.kubeconfig\n  mica run controllers --kubeconfig east.kubeconfig --kubeconfig west.kubeconfig --controllers=*,-resourcequota\n  mica run controllers --controllers control-plane --kubeconfig management.kubeconfig --server-kubeconfig shared.kubeconfig\n  mica run controllers --kubeconfig management.kubeconfig --registration shop"
    )]
    Controllers(ControllersArgs),
}

#[derive(Args, Debug)]
pub struct ControllersArgs {
    /// The kubeconfig of a server, by its current context; may be repeated
    #[arg(
        long,
        value_name = "FILE",
        env = "MICA_KUBECONFIG",
        required = true,
        value_delimiter = ','
    )]
    pub kubeconfig: Vec<PathBuf>,
    /// Which controllers run: * for all, foo for the one of that name, -foo for all but that one [default: *]
    #[arg(
        long,
        value_name = "NAME",
        env = "MICA_CONTROLLERS",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    pub controllers: Vec<String>,
    /// Also for what ControlPlaneRegistrations of these servers register for service controllers in mode Shared
    #[arg(long, conflicts_with = "registration")]
    pub registrations: bool,
    /// For nothing but the control plane of this registration, whatever its mode: one of mode Dedicated has this process to itself
    #[arg(long, value_name = "NAME")]
    pub registration: Option<String>,
    /// The server that control planes are made on, by the kubeconfig of an administrator [default: the one that is followed]
    #[arg(long, value_name = "FILE")]
    pub server_kubeconfig: Option<PathBuf>,
    /// What namespaces are told of who signs the server's certificate, in PEM [default: what its kubeconfig trusts]
    #[arg(long, value_name = "FILE")]
    pub root_ca_file: Option<PathBuf>,
    /// Where /metrics is served, over plain HTTP, such as 127.0.0.1:8080; port 0 takes a free one [default: nowhere]
    #[arg(long, value_name = "ADDRESS:PORT", env = "MICA_METRICS_BIND_ADDRESS")]
    pub metrics_bind_address: Option<SocketAddr>,
    /// error, warn, info, debug, trace, or a filter [default: info]
    #[arg(long, value_name = "LEVEL", env = "MICA_LOG")]
    pub log: Option<String>,
    /// The form of log lines [default: text]
    #[arg(long, value_enum, env = "MICA_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
    #[command(flatten)]
    pub leader: LeaderArgs,
    #[command(flatten)]
    pub operator: OperatorArgs,
}

/// Which of several processes works; the names are kube-controller-manager's.
#[derive(Args, Debug)]
#[command(next_help_heading = "Leader election")]
pub struct LeaderArgs {
    /// Work only while holding a Lease at each server, and stand by otherwise
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = clap::ArgAction::Set
    )]
    pub leader_elect: bool,
    /// How long others wait before they take over from one that renews no more
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    pub leader_elect_lease_duration: String,
    /// How long the one that works tries to renew before it stops
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub leader_elect_renew_deadline: String,
    /// How often it renews, and others look
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    pub leader_elect_retry_period: String,
    /// The name of the Lease: processes with different controllers need different ones [default: mica-controllers]
    #[arg(long, value_name = "NAME")]
    pub leader_elect_resource_name: Option<String>,
    /// The namespace of the Lease
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    pub leader_elect_resource_namespace: String,
}

#[derive(Args, Debug)]
pub struct PlaneArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(subcommand)]
    pub command: PlaneCommand,
}

#[derive(Subcommand, Debug)]
pub enum PlaneCommand {
    /// List planes
    List {
        /// The form of the output
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
    /// Create planes, ready to use when this returns
    #[command(after_help = "Example:\n  mica plane create team-a team-b")]
    Create {
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Which built-in kinds they serve [default: those that the server's root serves]
        #[arg(long, value_enum)]
        profile: Option<Profile>,
        /// The form of the output
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
    /// Delete planes and all that is in them
    #[command(after_help = "Example:\n  mica plane delete team-a --timeout 5m")]
    Delete {
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Do not wait until they are gone
        #[arg(long)]
        no_wait: bool,
        /// How long to wait for each
        #[arg(long, value_name = "DURATION", default_value = "60s")]
        timeout: String,
    },
    /// Save a plane, as it is at one moment, to a file
    #[command(
        after_help = "Examples:\n  mica plane snapshot team-a -f team-a.snapshot\n  mica plane snapshot team-a -f - | gzip > team-a.gz"
    )]
    Snapshot {
        name: String,
        /// The file to write; - is the standard output
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Make a new plane from a snapshot
    #[command(after_help = "Example:\n  mica plane restore team-b -f team-a.snapshot")]
    Restore {
        name: String,
        /// The file to read; - is the standard input
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Make a new plane with the content of another
    #[command(after_help = "Example:\n  mica plane fork team-a team-a-trial")]
    Fork {
        name: String,
        /// The name of the new plane
        #[arg(value_name = "NEW")]
        new: String,
    },
    /// Give planes what new planes are born with, where they have nothing of their own
    #[command(after_help = "Example:\n  mica plane rebase team-a")]
    Rebase {
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Print a kubeconfig for the administrator of a plane, who is somebody in that plane only
    #[command(
        after_help = "Example:\n  mica plane kubeconfig team-a -f team-a.kubeconfig\n  kubectl --kubeconfig team-a.kubeconfig get namespaces"
    )]
    Kubeconfig {
        name: String,
        /// How long it is good for: at least 10m, at most a year
        #[arg(long, value_name = "DURATION", default_value = "8760h")]
        expires: String,
        /// The file to write, readable by its owner only [default: the standard output]
        #[arg(short, long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

#[derive(Args, Debug)]
pub struct StoreArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(subcommand)]
    pub command: StoreCommand,
}

#[derive(Subcommand, Debug)]
pub enum StoreCommand {
    /// Save the whole store of a running server, as it is at one moment, to a file
    #[command(after_help = "Example:\n  mica store backup -f mica.backup")]
    Backup {
        /// The file to write; - is the standard output
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Fill an empty data directory from a backup; no server may run on it
    #[command(
        after_help = "Example:\n  mica store restore -f mica.backup --data-dir ./restored\n  mica up --data-dir ./restored"
    )]
    Restore {
        /// The file to read; - is the standard input
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
        /// The data directory to fill
        #[arg(long, value_name = "DIR", env = "MICA_DATA_DIR", default_value = "./.mica")]
        data_dir: PathBuf,
    },
    /// Read everything and verify its checksums: of a running server's store, or of a directory without a server
    #[command(after_help = "Examples:\n  mica store check\n  mica store check --data-dir ./.mica")]
    Check {
        /// The data directory, if no server runs on it
        #[arg(long, value_name = "DIR")]
        data_dir: Option<PathBuf>,
        /// The form of the output
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
