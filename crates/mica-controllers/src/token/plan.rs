//! Which Secrets have lost their account. A function of what was found.

use super::observe::Found;
use crate::meta::Meta;

/// The Secrets that hold tokens of an account of this name that is gone.
pub fn plan<'a>(account: &'a str, found: &'a Found) -> impl Iterator<Item = &'a Meta> {
    found.secrets.iter().filter(move |secret| {
        let marks = &secret.annotations;
        // One without a uid is about to be filled, if its account is there.
        let uid = marks.account_uid.as_ref();
        let lives = found.account.is_some() && (uid.is_none() || uid == found.account.as_ref());
        marks.account.as_deref() == Some(account) && !lives
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::Marks;

    fn secret(name: &str, account: &str, uid: Option<&str>) -> Meta {
        Meta {
            name: name.into(),
            annotations: Marks {
                account: Some(account.into()),
                account_uid: uid.map(Into::into),
                ..Marks::default()
            },
            ..Meta::default()
        }
    }

    fn check(account: Option<&str>, expected: &[&str]) {
        let found = Found {
            account: account.map(Into::into),
            secrets: vec![
                secret("of-it", "a", Some("u1")),
                secret("of-an-earlier-one", "a", Some("u0")),
                secret("new", "a", None),
                secret("of-another", "b", Some("u2")),
            ],
        };
        let doomed: Vec<&str> = plan("a", &found).map(|secret| secret.name.as_str()).collect();
        assert_eq!(doomed, expected);
    }

    #[test]
    fn secrets_go_with_their_account_and_no_other() {
        check(Some("u1"), &["of-an-earlier-one"]);
        check(None, &["of-it", "of-an-earlier-one", "new"]);
    }
}
