//! The flags of `mica org`, `mica project` and `mica ctx`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::cli::ServerArgs;

/// The form of what is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Form {
    #[default]
    Table,
    Json,
    Yaml,
    /// Only names, one per line
    Name,
}

#[derive(Args, Debug)]
pub struct OrgArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(subcommand)]
    pub command: OrgCommand,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum OrgType {
    Personal,
    #[default]
    Standard,
}

#[derive(Subcommand, Debug)]
pub enum OrgCommand {
    /// List organizations
    List {
        /// The form of the output
        #[arg(short, long, value_enum, default_value_t)]
        output: Form,
    },
    /// Create organizations
    #[command(after_help = "Example:\n  mica org create acme --display-name 'Acme Inc.'")]
    Create {
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// One person's, or a company's
        #[arg(long, value_enum, default_value_t)]
        r#type: OrgType,
        /// What people call it
        #[arg(long, value_name = "TEXT")]
        display_name: Option<String>,
        /// The form of the output
        #[arg(short, long, value_enum, default_value_t)]
        output: Form,
    },
    /// Show an organization, its members and its projects
    Describe { name: String },
    /// Delete organizations, with their projects and all that is in them
    Delete {
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// Print a kubeconfig for an organization's control plane, with your own credentials
    Kubeconfig {
        name: String,
        #[command(flatten)]
        file: FileArgs,
    },
}

#[derive(Args, Debug)]
pub struct ProjectArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// The organization that projects belong to [default: the one that `mica ctx` is at]
    #[arg(long, global = true, value_name = "NAME")]
    pub org: Option<String>,
    #[command(subcommand)]
    pub command: ProjectCommand,
}

#[derive(Subcommand, Debug)]
pub enum ProjectCommand {
    /// List projects: of one organization, or all
    List {
        /// The form of the output
        #[arg(short, long, value_enum, default_value_t)]
        output: Form,
    },
    /// Create projects, ready to use when this returns
    #[command(after_help = "Example:\n  mica project create web --org acme")]
    Create {
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// The PlaneClass of their planes
        #[arg(long, value_name = "NAME")]
        class: Option<String>,
        #[command(flatten)]
        wait: WaitArgs,
        /// The form of the output
        #[arg(short, long, value_enum, default_value_t)]
        output: Form,
    },
    /// Show a project and its conditions
    Describe { name: String },
    /// Delete projects and all that is in them
    Delete {
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// Print a kubeconfig for a project's control plane, with your own credentials
    #[command(
        after_help = "Example:\n  mica project kubeconfig web -f web.kubeconfig\n  kubectl --kubeconfig web.kubeconfig get namespaces"
    )]
    Kubeconfig {
        name: String,
        #[command(flatten)]
        file: FileArgs,
    },
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
pub struct FileArgs {
    /// The file to write, readable by its owner only [default: the standard output]
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  mica ctx            # the tree of organizations and projects\n  mica ctx acme       # an organization\n  mica ctx acme/web   # one of its projects\n  mica ctx /          # the platform"
)]
pub struct CtxArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    /// Where to go: ORG, ORG/PROJECT, or / for the platform; without it, what there is
    #[arg(value_name = "WHERE")]
    pub target: Option<String>,
}
