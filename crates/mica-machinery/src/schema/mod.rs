//! Schemas of custom resources: compiled once per content, then pruning, defaulting and checking objects.
//!
//! A [`Compiled`] is immutable and made from one version's `openAPIV3Schema` and nothing else, so that all planes with the
//! same schema share one; [`content_hash`] is what to share it by. The order of steps on a request, as upstream has it:
//! [`Compiled::prepare`], [`Compiled::default`], then [`Compiled::validate`] once metadata is known to be right.
//! An object read from the store takes the first two steps with [`Malformed::Drop`].
//!
//! Nothing here refuses a schema: whether a definition is acceptable is [`structural`] and `kind::extension`.

mod address;
pub mod column;
mod default;
pub mod default_check;
mod email;
mod embedded;
mod expression;
mod failure;
pub(crate) mod format;
pub(crate) mod go;
pub mod jsonpath;
mod listtype;
pub mod matcher;
mod node;
mod number;
pub mod pattern;
mod prune;
mod ratchet;
mod read;
pub mod rule;
pub mod scale;
pub(crate) mod selectable;
pub mod structural;
#[cfg(test)]
mod tests;
mod validate;

use serde_json::Value;
use sha2::{Digest, Sha256};

pub use embedded::Malformed;
pub use node::Place;
pub(crate) use node::{Additional, ListType, Node, Type as NodeType, Types};

use crate::cel::cost::RUNTIME_BUDGET;
use crate::field::{Error, ErrorList, Path, Reason};
use crate::managed::schema::TypeRef;
use read::Reader;
use rule::{RuleCompiler, RuleSet, RuleSite};

/// A version's schema, ready for use.
#[derive(Debug)]
pub struct Compiled {
    root: Node,
    rules: Vec<RuleSet>,
}

/// What checking an object found.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Checked {
    pub errors: ErrorList,
    /// Rules that fail on values that did not change.
    pub warnings: Vec<String>,
}

/// What tells one schema from another.
pub fn content_hash(schema: &Value) -> [u8; 32] {
    Sha256::digest(schema.to_string()).into()
}

impl Compiled {
    /// Compiles an `openAPIV3Schema` that was accepted as part of a definition.
    pub fn new(schema: &Value, compiler: &dyn RuleCompiler) -> Self {
        let mut reader = Reader::default();
        let root = reader.read(schema, Place::ResourceRoot);
        let sets = reader.rules.iter();
        let rules = sets
            .map(|(schema, place)| RuleSet::compile(compiler, RuleSite { schema, place: *place }))
            .collect();
        Compiled { root, rules }
    }

    /// Drops what the schema does not know: the paths of dropped fields, in upstream's order.
    ///
    /// The error is of metadata that cannot be read, the resource's own or an embedded one's.
    pub fn prepare(&self, object: &mut Value, malformed: Malformed) -> Result<Vec<String>, Error> {
        let mut unknown = Vec::new();
        if let Some(metadata) = object.get_mut("metadata") {
            embedded::coerce_metadata(metadata, &Path::new("metadata"), malformed, &mut unknown)?;
        }
        unknown.extend(prune::prune(&self.root, object));
        prune::drop_nulls(Some(&self.root), object);
        let mut dropped = Vec::new();
        embedded::coerce(&self.root, object, &Path::default(), malformed, &mut dropped)?;
        dropped.sort_unstable();
        unknown.append(&mut dropped);
        Ok(unknown)
    }

    /// Fills in defaults.
    pub fn default(&self, object: &mut Value) {
        default::fill(&self.root, object);
    }

    /// Checks an object, and on an update against the one it replaces. Its own metadata is not looked at.
    ///
    /// `earlier` are errors that were found before, about metadata and scale; together with these they decide whether rules run.
    pub fn validate(&self, object: &Value, old: Option<&Value>, earlier: Earlier<'_>) -> Checked {
        let mut errors = self.schema_errors(object, old);
        errors.extend(earlier.scale.iter().cloned());
        embedded::check(&self.root, object, &Path::default(), &mut errors);
        self.check_lists(object, old, &mut errors);
        self.run_rules(object, old, earlier, errors)
    }

    /// Checks a write to the `status` subresource: the schema of status alone, then what holds for the whole object.
    pub fn validate_status(&self, object: &Value, old: &Value, earlier: Earlier<'_>) -> Checked {
        let mut errors = match (self.root.properties.get("status"), object.get("status")) {
            (Some(node), Some(status)) => {
                // Upstream takes a status that was not there for null, and null for unchanged then.
                let before = old.get("status").unwrap_or(&Value::Null);
                validate::check(node, status, Some(before)).into_errors(&Path::new("status"))
            }
            _ => ErrorList::new(),
        };
        errors.extend(earlier.scale.iter().cloned());
        self.check_lists(object, Some(old), &mut errors);
        self.run_rules(object, Some(old), earlier, errors)
    }

    /// Sets and maps among lists, unless the old object broke their rules already.
    fn check_lists(&self, object: &Value, old: Option<&Value>, errors: &mut ErrorList) {
        let lists = |object: &Value| {
            let mut errors = ErrorList::new();
            listtype::check(&self.root, object, &Path::default(), &mut errors);
            errors
        };
        let found = lists(object);
        if !found.is_empty() && old.is_none_or(|old| lists(old).is_empty()) {
            errors.extend(found);
        }
    }

    /// Rules run on objects that they would not stumble over.
    fn run_rules(&self, object: &Value, old: Option<&Value>, earlier: Earlier<'_>, mut errors: ErrorList) -> Checked {
        let root = Path::default();
        if self.rules.is_empty() {
            return Checked {
                errors,
                warnings: Vec::new(),
            };
        }
        if errors.iter().chain(earlier.metadata).any(blocks_rules) {
            let text = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
            errors.push(Error::invalid(&root, Value::Null, text));
            return Checked {
                errors,
                warnings: Vec::new(),
            };
        }
        let (ran, _) = rule::run(&self.root, &self.rules, object, old, &root, RUNTIME_BUDGET);
        errors.extend(ran.errors);
        Checked {
            errors,
            warnings: ran.warnings,
        }
    }

    fn schema_errors(&self, object: &Value, old: Option<&Value>) -> ErrorList {
        validate::check(&self.root, object, old).into_errors(&Path::default())
    }

    /// The type that server-side apply merges objects by.
    pub fn merge_type(&self) -> TypeRef<'_> {
        TypeRef::resource(&self.root)
    }
}

/// Errors that upstream finds before, or between, those of the schema.
#[derive(Clone, Copy, Debug, Default)]
pub struct Earlier<'e> {
    /// Of the object's own metadata; they are not repeated in what is returned.
    pub metadata: &'e [Error],
    /// Of the scale subresource's paths; they are returned after the schema's own.
    pub scale: &'e [Error],
}

/// Whether rules would stumble over a value with this error.
fn blocks_rules(error: &Error) -> bool {
    matches!(
        error.reason,
        Reason::NotSupported | Reason::Required | Reason::TooLong | Reason::TooMany | Reason::TypeInvalid
    )
}
