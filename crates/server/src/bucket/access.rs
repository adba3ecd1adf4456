//! Where a bucket is, and the keys to it: the URL, and the variables that all programs for S3 read.
//!
//! | variable | |
//! |---|---|
//! | `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` | the keys |
//! | `AWS_SESSION_TOKEN` | of credentials that end |
//! | `AWS_SHARED_CREDENTIALS_FILE`, `AWS_PROFILE` | in place of these three: a file that has them, and the section in it (default) |
//! | `AWS_REGION`, else `AWS_DEFAULT_REGION` | us-east-1 unless it is said |
//! | `AWS_ENDPOINT_URL_S3`, else `AWS_ENDPOINT_URL` | another server than Amazon's, such as `https://minio:9000` |
//! | `AWS_CA_BUNDLE` | certificates in PEM that the server's has to come from; else those that Mozilla trusts |
//!
//! Amazon's buckets are part of the host's name, unless the bucket's name has a dot, which no certificate covers. Elsewhere they are part of the path.
//!
//! Keys of a file are read again when the server has refused them ([`Access::has_newer`]). So a program that renews them writes the file, and nothing is restarted.
//!
//! Left out on purpose: names of objects that need encoding. A prefix has letters, digits, `-`, `_`, `.` and slashes. The machine's metadata service.

use super::sign::Signer;
use base::{Error, Result, SqlState};
use parking_lot::Mutex;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use ureq::tls::{PemItem, RootCerts, parse_pem};

/// A bucket and a prefix in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub bucket: String,
    /// Empty, or without a slash at its ends.
    prefix: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix.as_str() {
            "" => write!(f, "s3://{}", self.bucket),
            prefix => write!(f, "s3://{}/{prefix}", self.bucket),
        }
    }
}

impl Place {
    /// Of what follows `s3://`; else what is wrong with it.
    pub fn parse(rest: &str) -> std::result::Result<Place, &'static str> {
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let ends =
            bucket.bytes().next().is_some_and(lower) && bucket.bytes().last().is_some_and(lower);
        if !ends
            || !(3..=63).contains(&bucket.len())
            || !bucket.bytes().all(|b| lower(b) || b"-.".contains(&b))
        {
            return Err("a bucket's name has 3 to 63 small letters, digits, - and .");
        }
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        let fine = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(plain);
        if !prefix.is_empty() && !prefix.split('/').all(fine) {
            return Err("a prefix has letters, digits, -, _ and . between its slashes");
        }
        Ok(Place {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        })
    }

    /// The key of an object.
    pub fn key(&self, name: &str) -> String {
        match self.prefix.as_str() {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        }
    }
}

/// They have no `Debug`: the secret is for no log.
#[derive(PartialEq, Eq)]
pub struct Keys {
    key: String,
    secret: String,
    pub token: Option<String>,
}

/// A file with keys, and its section.
struct KeyFile {
    path: PathBuf,
    profile: String,
}

impl KeyFile {
    /// The keys that are there now.
    fn read(&self) -> std::result::Result<Keys, String> {
        let text = std::fs::read_to_string(&self.path).map_err(|e| e.to_string())?;
        let mut here = false;
        let (mut key, mut secret, mut token) = (None, None, None);
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                here = name.trim() == self.profile;
            } else if let Some((name, value)) = line.split_once('=').filter(|_| here) {
                let value = Some(value.trim().to_owned()).filter(|v| !v.is_empty());
                match name.trim() {
                    "aws_access_key_id" => key = value,
                    "aws_secret_access_key" => secret = value,
                    "aws_session_token" => token = value,
                    _ => {}
                }
            }
        }
        match (key, secret) {
            (Some(key), Some(secret)) => Ok(Keys { key, secret, token }),
            _ => Err(format!(
                "its section [{}] lacks aws_access_key_id or aws_secret_access_key",
                self.profile
            )),
        }
    }
}

/// See the head of the file.
pub struct Access {
    keys: Mutex<Arc<Keys>>,
    /// Where they come from, if not from variables.
    file: Option<KeyFile>,
    region: String,
    https: bool,
    /// Host and port, and a path before the bucket's name.
    host: String,
    path: String,
    /// Whether the bucket is part of the host's name.
    by_host: bool,
    pub roots: Option<RootCerts>,
}

fn invalid(what: String) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, what)
}

impl Access {
    /// Of variables.
    pub fn of(place: &Place, variable: impl Fn(&str) -> Option<String>) -> Result<Access> {
        let said = |name: &str| variable(name).filter(|v| !v.is_empty());
        let needed = |name: &str| {
            said(name).ok_or_else(|| {
                invalid(format!("{place}: the variable {name} is not set"))
                    .hint("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SHARED_CREDENTIALS_FILE, are needed; AWS_SESSION_TOKEN, AWS_PROFILE, AWS_REGION, AWS_ENDPOINT_URL and AWS_CA_BUNDLE are known.")
            })
        };
        let by_variables = said("AWS_ACCESS_KEY_ID").is_some();
        let file = said("AWS_SHARED_CREDENTIALS_FILE").filter(|_| !by_variables);
        let file = file.map(|path| KeyFile {
            path: path.into(),
            profile: said("AWS_PROFILE").unwrap_or_else(|| "default".into()),
        });
        let keys = match &file {
            Some(file) => file.read().map_err(|why| {
                let path = file.path.display();
                invalid(format!("AWS_SHARED_CREDENTIALS_FILE = {path}: {why}"))
            })?,
            None => Keys {
                key: needed("AWS_ACCESS_KEY_ID")?,
                secret: needed("AWS_SECRET_ACCESS_KEY")?,
                token: said("AWS_SESSION_TOKEN"),
            },
        };
        let region = said("AWS_REGION").or_else(|| said("AWS_DEFAULT_REGION"));
        let region = region.unwrap_or_else(|| "us-east-1".into());
        let endpoint = said("AWS_ENDPOINT_URL_S3").or_else(|| said("AWS_ENDPOINT_URL"));
        let by_host = endpoint.is_none() && !place.bucket.contains('.');
        let endpoint = endpoint.unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let parts = match endpoint.split_once("://") {
            Some(("https", rest)) => Some((true, rest)),
            Some(("http", rest)) => Some((false, rest)),
            _ => None,
        };
        let parts = parts.filter(|(_, rest)| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.:/[]".contains(&b);
            !rest.is_empty() && !rest.starts_with('/') && rest.bytes().all(plain)
        });
        let Some((https, rest)) = parts else {
            return Err(invalid(format!(
                "AWS_ENDPOINT_URL = {endpoint:?}: http:// or https://, a host and a port are meant"
            )));
        };
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let path = path.trim_end_matches('/');
        let roots = said("AWS_CA_BUNDLE").map(|file| roots(&file)).transpose()?;
        Ok(Access {
            keys: Mutex::new(Arc::new(keys)),
            file,
            region,
            https,
            host: host.to_owned(),
            path: match path {
                "" => String::new(),
                path => format!("/{path}"),
            },
            by_host,
            roots,
        })
    }

    pub fn scheme(&self) -> &'static str {
        if self.https { "https" } else { "http" }
    }

    /// The server's name, for messages.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The host to which requests for a bucket go.
    pub fn host_of(&self, bucket: &str) -> String {
        match self.by_host {
            true => format!("{bucket}.{}", self.host),
            false => self.host.clone(),
        }
    }

    /// The path of a key, or of the bucket for an empty one.
    pub fn path(&self, bucket: &str, key: &str) -> String {
        match (self.by_host, key) {
            (true, key) => format!("{}/{key}", self.path),
            (false, "") => format!("{}/{bucket}", self.path),
            (false, key) => format!("{}/{bucket}/{key}", self.path),
        }
    }

    /// The keys that are in use.
    pub fn keys(&self) -> Arc<Keys> {
        self.keys.lock().clone()
    }

    /// Whether there are other keys than these, which the server has refused. The file is read again.
    pub fn has_newer(&self, refused: &Keys) -> bool {
        let mut keys = self.keys.lock();
        if **keys != *refused {
            return true;
        }
        // One that cannot be read, while it is written say, has no newer ones.
        let read = self.file.as_ref().and_then(|f| f.read().ok());
        match read.filter(|k| k != refused) {
            Some(newer) => {
                *keys = Arc::new(newer);
                true
            }
            None => false,
        }
    }

    pub fn signer<'a>(&'a self, keys: &'a Keys) -> Signer<'a> {
        Signer {
            key: &keys.key,
            secret: &keys.secret,
            region: &self.region,
        }
    }
}

fn roots(file: &str) -> Result<RootCerts> {
    let bad = |why: &dyn fmt::Display| invalid(format!("AWS_CA_BUNDLE = {file:?}: {why}"));
    let pem = std::fs::read(file).map_err(|e| bad(&e))?;
    let mut all = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(one) = item.map_err(|e| bad(&e))? {
            all.push(one);
        }
    }
    match all.is_empty() {
        true => Err(bad(&"there is no certificate in it")),
        false => Ok(RootCerts::from(all)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(place: &str, more: &[(&str, &str)]) -> Result<Access> {
        let mut all = vec![("AWS_ACCESS_KEY_ID", "k"), ("AWS_SECRET_ACCESS_KEY", "s")];
        all.extend(more);
        let place = Place::parse(place).expect("a place");
        Access::of(&place, |name| {
            let found = all.iter().rfind(|v| v.0 == name);
            found.map(|v| v.1.to_owned())
        })
    }

    #[test]
    fn places() {
        let place = Place::parse("backups/canon/east/").unwrap();
        assert_eq!(place.to_string(), "s3://backups/canon/east");
        assert_eq!(place.key("a/b"), "canon/east/a/b");
        let place = Place::parse("backups").unwrap();
        assert_eq!(
            (place.to_string().as_str(), place.key("a").as_str()),
            ("s3://backups", "a")
        );
        for bad in [
            "",
            "ab",
            "Backups",
            "b/",
            "-backups",
            "backups//x",
            "backups/../x",
            "backups/ä",
        ] {
            assert!(Place::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn hosts_and_paths() {
        let of = |place: &str, more: &[(&str, &str)]| {
            let a = access(place, more).unwrap();
            let bucket = Place::parse(place).unwrap().bucket;
            format!(
                "{}://{}{}",
                a.scheme(),
                a.host_of(&bucket),
                a.path(&bucket, "k")
            )
        };
        assert_eq!(of("one", &[]), "https://one.s3.us-east-1.amazonaws.com/k");
        assert_eq!(
            of("o.ne", &[("AWS_REGION", "eu-west-1")]),
            "https://s3.eu-west-1.amazonaws.com/o.ne/k"
        );
        assert_eq!(
            of("one", &[("AWS_ENDPOINT_URL", "http://127.0.0.1:9000/")]),
            "http://127.0.0.1:9000/one/k"
        );
        assert_eq!(
            of("one", &[("AWS_ENDPOINT_URL", "https://gate/s3/")]),
            "https://gate/s3/one/k"
        );
    }

    #[test]
    fn keys_of_a_file_are_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("credentials");
        let write = |key: &str| {
            let text = format!(
                "# mine\n[other]\naws_access_key_id = o\naws_secret_access_key = o\n\n[backup]\n\
                 aws_access_key_id={key}\naws_secret_access_key = s=+/\naws_session_token = t\n"
            );
            std::fs::write(&file, text).unwrap();
        };
        write("one");
        let path = file.to_str().unwrap();
        let variables = [
            ("AWS_ACCESS_KEY_ID", ""),
            ("AWS_SECRET_ACCESS_KEY", ""),
            ("AWS_SHARED_CREDENTIALS_FILE", path),
            ("AWS_PROFILE", "backup"),
        ];
        let of_file = access("one", &variables).unwrap();
        let first = of_file.keys();
        assert_eq!(
            (&*first.key, &*first.secret, first.token.as_deref()),
            ("one", "s=+/", Some("t"))
        );
        assert!(!of_file.has_newer(&first));
        std::fs::write(&file, "half").unwrap();
        assert!(!of_file.has_newer(&first));
        write("two");
        assert!(of_file.has_newer(&first));
        assert_eq!(of_file.keys().key, "two");
        // Another request has read them meanwhile.
        assert!(of_file.has_newer(&first));
        // Variables win, and do not change.
        let by_variables = access("one", &variables[2..]).unwrap();
        assert_eq!(by_variables.keys().key, "k");
        assert!(!by_variables.has_newer(&by_variables.keys()));
        let nobody = [&variables[..3], &[("AWS_PROFILE", "nobody")]].concat();
        let error = access("one", &nobody).err().expect("it is refused");
        assert!(error.to_string().contains("[nobody]"), "{error}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (more, why) in [
            (("AWS_ACCESS_KEY_ID", ""), "AWS_ACCESS_KEY_ID is not set"),
            (
                ("AWS_SECRET_ACCESS_KEY", ""),
                "AWS_SECRET_ACCESS_KEY is not set",
            ),
            (("AWS_ENDPOINT_URL", "minio:9000"), "AWS_ENDPOINT_URL"),
            (("AWS_CA_BUNDLE", "/nowhere"), "AWS_CA_BUNDLE"),
        ] {
            let error = access("one", &[more]).err().expect("it is refused");
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
