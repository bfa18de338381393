//! The options of `nix-store --query`.

use clap::{ArgGroup, Args};

/// The kinds of queries.
#[derive(Clone, Debug, Args)]
#[command(group = ArgGroup::new("fact"))]
pub(crate) struct QueryArgs {
    /// With --query, print the closures
    #[arg(long, short = 'R', group = "fact")]
    pub(super) requisites: bool,
    /// With --query, print the references
    #[arg(long, group = "fact")]
    pub(super) references: bool,
    /// With --query, print the paths that refer to these
    #[arg(long, alias = "referers", group = "fact")]
    pub(super) referrers: bool,
    /// With --query, print the paths that refer to these directly or indirectly
    #[arg(long, alias = "referers-closure", group = "fact")]
    pub(super) referrers_closure: bool,
    /// With --query, print the derivations
    #[arg(long, short = 'd', group = "fact")]
    pub(super) deriver: bool,
    /// With --query, print the valid derivations that have these outputs
    #[arg(long, group = "fact")]
    pub(super) valid_derivers: bool,
    /// With --query, print a variable of the derivations
    #[arg(
        long,
        short = 'b',
        value_name = "NAME",
        group = "fact",
        requires = "query"
    )]
    pub(super) binding: Option<String>,
    /// With --query, print the hashes of the NARs
    #[arg(long, group = "fact")]
    pub(super) hash: bool,
    /// With --query, print the sizes of the NARs in bytes
    #[arg(long, group = "fact")]
    pub(super) size: bool,
    /// With --query, print the closures as trees
    #[arg(long, group = "fact")]
    pub(super) tree: bool,
    /// With --query, print the closures as a graph in the language of Graphviz
    #[arg(long, group = "fact")]
    pub(super) graph: bool,
    /// With --query, print the paths to which links lead
    #[arg(long, group = "fact")]
    pub(super) resolve: bool,
    /// With --query, print the roots that keep these paths
    #[arg(long, group = "fact")]
    pub(super) roots: bool,
    /// With --query, print the outputs of derivations; this is the default
    #[arg(long, group = "fact")]
    pub(super) outputs: bool,
    /// With --requisites, also print the valid outputs of derivations
    #[arg(long)]
    pub(super) include_outputs: bool,
    /// With --query, take the outputs of derivations instead of these
    #[arg(long, short = 'u')]
    pub(super) use_output: bool,
}

impl QueryArgs {
    /// Returns the first option that is used and needs `--query`.
    pub(super) fn first_used(&self) -> Option<&'static str> {
        let options = [
            (self.requisites, "--requisites"),
            (self.references, "--references"),
            (self.referrers, "--referrers"),
            (self.referrers_closure, "--referrers-closure"),
            (self.deriver, "--deriver"),
            (self.valid_derivers, "--valid-derivers"),
            (self.binding.is_some(), "--binding"),
            (self.hash, "--hash"),
            (self.size, "--size"),
            (self.tree, "--tree"),
            (self.graph, "--graph"),
            (self.resolve, "--resolve"),
            (self.roots, "--roots"),
            (self.outputs, "--outputs"),
            (self.include_outputs, "--include-outputs"),
            (self.use_output, "--use-output"),
        ];
        let used = options.into_iter().find(|(is_used, _)| *is_used);
        used.map(|(_, option)| option)
    }
}
