//! Certificates and keys as files: `DIR/pki`, keys with mode 0600, each file replaced as a whole.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::PkiError;
use super::authority::{ADMIN_GROUP, ADMIN_NAME, Authority, Identity, Issued};

/// The directory that holds them.
#[derive(Clone, Debug)]
pub struct PkiDir(PathBuf);

const AUTHORITY: &str = "ca";
const SERVING: &str = "apiserver";
const ADMIN: &str = "admin";

impl PkiDir {
    /// Uses the directory, making it if it is not there, readable by its owner only.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, PkiError> {
        let path = path.into();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(|source| failed(&path, "making it", source))?;
        Ok(Self(path))
    }

    /// The authority kept here, if there is one. One file without the other is an error, not a reason to make a new one.
    pub fn authority(&self) -> Result<Option<Authority>, PkiError> {
        match self.read_pair(AUTHORITY)? {
            (Some(certificate), Some(key)) => Authority::from_pem(&certificate, &key).map(Some),
            (None, None) => Ok(None),
            (certificate, _) => {
                let missing = self.file(AUTHORITY, if certificate.is_some() { "key" } else { "crt" });
                Err(failed(&missing, "reading", io::ErrorKind::NotFound.into()))
            }
        }
    }

    /// Keeps an authority here.
    pub fn keep_authority(&self, authority: &Authority) -> Result<(), PkiError> {
        self.write_pair(AUTHORITY, authority.certificate_pem(), authority.key_pem())
    }

    /// Makes sure that the authority kept here, if any, is the given one, which comes from the store.
    pub fn adopt_authority(&self, shared: &Authority) -> Result<(), PkiError> {
        match self.authority()? {
            Some(own) if own.certificate() != shared.certificate() => {
                Err(PkiError::OtherAuthority(self.0.display().to_string()))
            }
            Some(_) => Ok(()),
            None => self.keep_authority(shared),
        }
    }

    /// The server's certificate for `hosts`: the one kept here if it is still right, else a new one, kept.
    pub fn serving(&self, authority: &Authority, hosts: &[String], now: SystemTime) -> Result<Issued, PkiError> {
        self.leaf(SERVING, authority, hosts, now, || {
            authority.issue_serving("mica", hosts, now)
        })
    }

    /// The administrator's certificate, likewise.
    pub fn admin(&self, authority: &Authority, now: SystemTime) -> Result<Issued, PkiError> {
        let identity = Identity {
            name: ADMIN_NAME.to_owned(),
            group: Some(ADMIN_GROUP.to_owned()),
        };
        self.leaf(ADMIN, authority, &[], now, || authority.issue_client(&identity, now))
    }

    fn leaf(
        &self,
        name: &str,
        authority: &Authority,
        hosts: &[String],
        now: SystemTime,
        issue: impl FnOnce() -> Result<Issued, PkiError>,
    ) -> Result<Issued, PkiError> {
        if let (Some(certificate), Some(key)) = self.read_pair(name)?
            && let Some(kept) = authority.readopt(&certificate, &key, hosts, now)
        {
            return Ok(kept);
        }
        let issued = issue()?;
        self.write_pair(name, &issued.certificate_pem, &issued.key_pem)?;
        Ok(issued)
    }

    fn file(&self, name: &str, extension: &str) -> PathBuf {
        self.0.join(format!("{name}.{extension}"))
    }

    fn read_pair(&self, name: &str) -> Result<(Option<String>, Option<String>), PkiError> {
        let read = |path: PathBuf| match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(failed(&path, "reading", source)),
        };
        Ok((read(self.file(name, "crt"))?, read(self.file(name, "key"))?))
    }

    /// The key goes first: a certificate without its key would look like damage, a key without its certificate is made anew.
    fn write_pair(&self, name: &str, certificate: &str, key: &str) -> Result<(), PkiError> {
        for (extension, text, mode) in [("key", key, 0o600), ("crt", certificate, 0o644)] {
            let path = self.file(name, extension);
            replace(&path, text.as_bytes(), mode).map_err(|source| failed(&path, "writing", source))?;
        }
        Ok(())
    }
}

/// Writes a file that only its owner may read, in one step: readers see the old or the new, never half.
pub fn write_private(path: &Path, text: &[u8]) -> Result<(), PkiError> {
    replace(path, text, 0o600).map_err(|source| failed(path, "writing", source))
}

fn replace(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(beside);
    let _ = fs::remove_file(&beside);
    let written = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&beside)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

fn failed(path: &Path, action: &'static str, source: io::Error) -> PkiError {
    PkiError::Io {
        path: path.display().to_string(),
        action,
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::pki::serving_names;

    #[test]
    fn what_was_made_once_is_found_again() {
        let home = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let dir = PkiDir::open(home.path().join("pki")).unwrap();
        let authority = Authority::generate("mica-ca", now).unwrap();
        dir.keep_authority(&authority).unwrap();
        let again = dir.authority().unwrap().expect("it was kept");
        assert_eq!(authority.certificate(), again.certificate());
        let hosts = serving_names([]);
        let first = dir.serving(&authority, &hosts, now).unwrap();
        assert_eq!(
            first.certificate_pem,
            dir.serving(&again, &hosts, now).unwrap().certificate_pem
        );
        let more = serving_names(["new.example".to_owned()]);
        assert_ne!(
            first.certificate_pem,
            dir.serving(&again, &more, now).unwrap().certificate_pem
        );
        let admin = dir.admin(&authority, now).unwrap();
        assert_eq!(admin.key_pem, dir.admin(&authority, now).unwrap().key_pem);
        for key in ["ca.key", "apiserver.key", "admin.key"] {
            let mode = fs::metadata(home.path().join("pki").join(key))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600, "{key}");
        }
        assert_eq!(
            fs::read_dir(home.path().join("pki")).unwrap().count(),
            6,
            "nothing is left behind"
        );
    }

    #[test]
    fn a_foreign_authority_and_half_an_authority_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let dir = PkiDir::open(home.path()).unwrap();
        let shared = Authority::generate("mica-ca", now).unwrap();
        dir.adopt_authority(&shared).unwrap();
        dir.adopt_authority(&shared).unwrap();
        let other = Authority::generate("mica-ca", now).unwrap();
        assert!(matches!(dir.adopt_authority(&other), Err(PkiError::OtherAuthority(_))));
        fs::remove_file(home.path().join("ca.key")).unwrap();
        assert!(dir.authority().is_err());
    }
}
