//! The flags of `mica control-plane`.

use clap::{Args, Subcommand, ValueEnum};

use crate::cli::ServerArgs;
use crate::tenant::args::{FileArgs, Form};

#[derive(Args, Debug)]
pub struct ControlPlaneArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(subcommand)]
    pub command: ControlPlaneCommand,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Mode {
    /// Among others on a shared server
    Virtual,
    /// On a server of its own
    Dedicated,
}

impl Mode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Virtual => "Virtual",
            Self::Dedicated => "Dedicated",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Policy {
    /// Its data stays, and can be adopted
    Retain,
    /// Its data goes
    Destroy,
}

impl Policy {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retain => "Retain",
            Self::Destroy => "Destroy",
        }
    }
}

#[derive(Subcommand, Debug)]
pub enum ControlPlaneCommand {
    /// List control planes
    List {
        /// The form of the output
        #[arg(short, long, value_enum, default_value_t)]
        output: Form,
    },
    /// Create control planes, ready to use when this returns
    #[command(
        after_help = "Examples:\n  mica control-plane create shop --class starter\n  mica control-plane create bank --mode dedicated --timeout 2m"
    )]
    Create {
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        #[command(flatten)]
        wanted: Box<WantedArgs>,
        #[command(flatten)]
        wait: WaitArgs,
        /// The form of the output
        #[arg(short, long, value_enum, default_value_t)]
        output: Form,
    },
    /// Show a control plane: its addresses, conditions, registrations and what happened
    Describe { name: String },
    /// Print the kubeconfig of a control plane's administrator
    #[command(
        after_help = "Example:\n  mica control-plane kubeconfig shop -f shop.kubeconfig\n  kubectl --kubeconfig shop.kubeconfig get namespaces"
    )]
    Kubeconfig {
        name: String,
        /// The one with the address for what runs near the server
        #[arg(long)]
        internal: bool,
        #[command(flatten)]
        file: FileArgs,
    },
    /// Move a control plane to a server of its own or back, while it serves
    #[command(
        after_help = "Examples:\n  mica control-plane migrate shop --to dedicated\n  mica control-plane migrate shop --to virtual --timeout 30m"
    )]
    Migrate {
        name: String,
        /// Where it goes
        #[arg(long, value_enum)]
        to: Mode,
        #[command(flatten)]
        dedicated: DedicatedArgs,
        #[command(flatten)]
        wait: MigrationWaitArgs,
    },
    /// Delete control planes; what becomes of their data is told first
    #[command(after_help = "Example:\n  mica control-plane delete shop --yes")]
    Delete {
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
        /// What becomes of their data, whatever they and their classes say
        #[arg(long, value_enum, value_name = "POLICY")]
        deletion_policy: Option<Policy>,
        #[command(flatten)]
        wait: WaitArgs,
    },
}

/// What a new control plane is to be.
#[derive(Args, Debug, Clone)]
pub struct WantedArgs {
    /// Its ControlPlaneClass
    #[arg(long, value_name = "NAME")]
    pub class: Option<String>,
    /// Where its plane is [default: virtual]
    #[arg(long, value_enum)]
    pub mode: Option<Mode>,
    /// The ControlPlaneEndpoint that it is reached at [default: as its class says, else at the server]
    #[arg(long, value_name = "NAME")]
    pub endpoint: Option<String>,
    /// The name of its plane, for ever [default: its own]
    #[arg(long, value_name = "NAME")]
    pub cluster_path: Option<String>,
    /// What becomes of its data when it is deleted [default: as its class says, else retain]
    #[arg(long, value_enum, value_name = "POLICY")]
    pub deletion_policy: Option<Policy>,
    /// The id of a retained plane of that name which it takes over
    #[arg(long, value_name = "ID")]
    pub adopt: Option<String>,
    #[command(flatten)]
    pub dedicated: DedicatedArgs,
}

/// How the server of a dedicated control plane is to be.
#[derive(Args, Debug, Clone, Default)]
pub struct DedicatedArgs {
    /// Who runs its server: Process or Etcd [default: Process]
    #[arg(long, value_name = "KIND")]
    pub provider: Option<String>,
    /// Which of the versions that the provider knows
    #[arg(long, value_name = "VERSION")]
    pub version: Option<String>,
}

#[derive(Args, Debug, Clone)]
pub struct WaitArgs {
    /// Do not wait
    #[arg(long)]
    pub no_wait: bool,
    /// How long to wait for each
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    pub timeout: String,
}

#[derive(Args, Debug, Clone)]
pub struct MigrationWaitArgs {
    /// Do not follow it
    #[arg(long)]
    pub no_wait: bool,
    /// How long to follow it; it goes on by itself
    #[arg(long, value_name = "DURATION", default_value = "15m")]
    pub timeout: String,
}
