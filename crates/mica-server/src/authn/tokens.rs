//! Bearer tokens from a file: lines of `token,user,uid[,"group,group"]`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use sha2::{Digest as _, Sha256};

use crate::authz::User;

/// The users that tokens stand for. Found by the token's hash: how long a search takes then says nothing about a token.
#[derive(Clone, Debug, Default)]
pub struct Tokens(Arc<ArcSwap<HashMap<[u8; 32], User>>>);

#[derive(Debug, thiserror::Error)]
pub enum BadTokens {
    #[error("{path}")]
    Unreadable {
        path: String,
        #[source]
        source: std::io::Error,
    },
    #[error("token file '{path}' must have at least 3 columns (token, user name, user uid), found {found}")]
    FewColumns { path: String, found: usize },
    #[error("token file '{path}': line {line}: a quote is not closed")]
    OpenQuote { path: String, line: usize },
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

impl Tokens {
    pub fn read(path: &Path) -> Result<Self, BadTokens> {
        let shown = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, &shown),
            Err(source) => Err(BadTokens::Unreadable { path: shown, source }),
        }
    }

    /// From now on these count, wherever the earlier ones did.
    pub fn replace(&self, other: &Self) {
        self.0.store(other.0.load_full());
    }

    pub fn parse(text: &str, path: &str) -> Result<Self, BadTokens> {
        let mut users = HashMap::new();
        for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
            let columns = columns(line).ok_or_else(|| BadTokens::OpenQuote {
                path: path.to_owned(),
                line: i + 1,
            })?;
            let [token, name, uid, rest @ ..] = &columns[..] else {
                return Err(BadTokens::FewColumns {
                    path: path.to_owned(),
                    found: columns.len(),
                });
            };
            if token.is_empty() {
                tracing::warn!("an empty token is in the file of tokens, line {}", i + 1);
                continue;
            }
            let groups = rest.first().map(|groups| groups.split(',').map(str::to_owned));
            let mut groups: Vec<String> = groups.into_iter().flatten().collect();
            groups.push("system:authenticated".to_owned());
            let user = User {
                name: name.clone(),
                uid: uid.clone(),
                groups,
                ..User::default()
            };
            users.insert(hash(token), user);
        }
        Ok(Self(Arc::new(ArcSwap::from_pointee(users))))
    }

    /// Whose token a request carries.
    pub fn user(&self, token: &str) -> Option<User> {
        let users = self.0.load();
        // Mostly there are none, and then there is nothing to look for.
        if users.is_empty() {
            return None;
        }
        users.get(&hash(token)).cloned()
    }
}

/// The columns of a line, of which some are quoted. A doubled quote inside stands for one.
fn columns(line: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    let mut rest = line;
    loop {
        let mut column = String::new();
        if let Some(mut quoted) = rest.strip_prefix('"') {
            loop {
                let (part, after) = quoted.split_once('"')?;
                column.push_str(part);
                match after.strip_prefix('"') {
                    Some(more) => {
                        column.push('"');
                        quoted = more;
                    }
                    None => {
                        rest = after;
                        break;
                    }
                }
            }
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            column.push_str(&rest[..end]);
            rest = &rest[end..];
        }
        all.push(column);
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return Some(all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_stands_for_the_user_of_its_line() {
        let tokens = Tokens::parse("t1,ann,1,\"dev,\"\"ops\"\"\"\n\n,nobody,0\nt2,bob,2\n", "f").unwrap();
        let ann = tokens.user("t1").unwrap();
        assert_eq!((ann.name.as_str(), ann.uid.as_str()), ("ann", "1"));
        assert_eq!(ann.groups, ["dev", "\"ops\"", "system:authenticated"]);
        assert_eq!(tokens.user("t2").unwrap().name, "bob");
        for unknown in ["t3", ""] {
            assert_eq!(tokens.user(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a_line_that_is_too_short_or_not_closed_is_named() {
        let refused = |text: &str| Tokens::parse(text, "f").unwrap_err().to_string();
        assert_eq!(
            refused("t1,ann"),
            "token file 'f' must have at least 3 columns (token, user name, user uid), found 2"
        );
        assert_eq!(
            refused("a,b,c\n\"x,ann,1"),
            "token file 'f': line 2: a quote is not closed"
        );
    }
}
