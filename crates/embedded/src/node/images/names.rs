//! Image names: their forms, their tags, and the patterns they match.

/// Where names without a registry come from.
const REGISTRY: &str = "docker.io";
/// Where names of one word are kept there.
const LIBRARY: &str = "library";

/// A well-formed image name in all the ways it can be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    forms: Vec<String>,
    tag: String,
}

impl Name {
    /// # Errors
    /// The reference's words on why this is no name of an image.
    pub(super) fn read(image: &str) -> Result<Self, String> {
        let wrong = || "invalid reference format".to_owned();
        let (rest, digest) = match image.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (image, None),
        };
        let last = rest.rfind('/').map_or(0, |at| at + 1);
        let (path, tag) = match rest.rfind(':').filter(|at| *at >= last) {
            Some(at) => (
                rest.get(..at).unwrap_or_default(),
                Some(rest.get(at + 1..).unwrap_or_default()),
            ),
            None => (rest, None),
        };
        let (registry, repository) = match path.split_once('/') {
            Some((first, below)) if is_registry(first) => (first, below.to_owned()),
            Some(_) => (REGISTRY, path.to_owned()),
            None => (REGISTRY, format!("{LIBRARY}/{path}")),
        };
        let registry = if registry == "index.docker.io" {
            REGISTRY
        } else {
            registry
        };
        let repository = if registry == REGISTRY && !repository.contains('/') {
            format!("{LIBRARY}/{repository}")
        } else {
            repository
        };
        if !repository.split('/').all(is_component) {
            return Err(
                if repository.split('/').all(|part| is_component(&part.to_lowercase())) {
                    format!("{}: repository name ({repository}) must be lowercase", wrong())
                } else {
                    wrong()
                },
            );
        }
        if !tag.is_none_or(is_tag) || !digest.is_none_or(is_digest) {
            return Err(wrong());
        }
        let suffix = match (tag, digest) {
            (None, None) => ":latest".to_owned(),
            _ => image.get(path.len()..).unwrap_or_default().to_owned(),
        };
        let full = format!("{registry}/{repository}{suffix}");
        let mut forms = vec![image.to_owned(), full.clone()];
        forms.extend(full.strip_prefix("docker.io/").map(str::to_owned));
        forms.extend(full.strip_prefix("docker.io/library/").map(str::to_owned));
        let tag = match (tag, digest.and_then(|digest| digest.split_once(':'))) {
            (Some(tag), _) => tag,
            (None, Some((_, digits))) => digits,
            (None, None) => "latest",
        };
        Ok(Self {
            forms,
            tag: tag.to_owned(),
        })
    }

    pub(super) fn matches(&self, pattern: &str) -> bool {
        self.forms.iter().any(|form| fits(pattern, form))
    }

    /// What `{tag}` stands for: the tag; `latest` without one; with a digest alone its digits. Never a path.
    pub(super) fn tag(&self) -> &str {
        &self.tag
    }
}

fn is_registry(part: &str) -> bool {
    let known_by = part.contains('.') || part.contains(':') || part == "localhost";
    known_by
        && part
            .chars()
            .all(|sign| sign.is_ascii_alphanumeric() || ".-:".contains(sign))
}

fn is_component(part: &str) -> bool {
    let inner = |sign: char| sign.is_ascii_lowercase() || sign.is_ascii_digit();
    part.starts_with(inner) && part.ends_with(inner) && part.chars().all(|sign| inner(sign) || "._-".contains(sign))
}

/// A tag becomes part of a path, so it must not begin with a dot.
fn is_tag(tag: &str) -> bool {
    let word = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
    tag.len() <= 128 && tag.starts_with(word) && tag.chars().all(|sign| word(sign) || ".-".contains(sign))
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(kind, digits)| {
        !kind.is_empty()
            && kind.chars().all(|sign| sign.is_ascii_alphanumeric())
            && digits.len() >= 32
            && digits.chars().all(|sign| sign.is_ascii_hexdigit())
    })
}

/// `*` is any text, also none.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut rest) = text.strip_prefix(head) else {
        return false;
    };
    let (middle, last) = tail.rsplit_once('*').unwrap_or(("", tail));
    for part in middle.split('*') {
        // The first place is as good as any later one: what follows has the more room.
        match rest.split_once(part) {
            Some((_, behind)) if !part.is_empty() => rest = behind,
            None => return false,
            Some(_) => {}
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_written_and_with_the_registry_added_or_taken_off() {
        let rows = [
            ("valkey/valkey:*", "valkey/valkey:8", true),
            ("valkey/valkey:*", "docker.io/valkey/valkey:8", true),
            ("docker.io/valkey/valkey:*", "valkey/valkey:8", true),
            ("valkey/valkey:*", "valkey/valkey", true),
            ("valkey/valkey:*", "quay.io/valkey/valkey:8", false),
            ("valkey/valkey:*", "valkey/valkey-bundle:8", false),
            ("nats", "nats", true),
            ("nats", "nats:latest", false),
            ("nats:latest", "nats", true),
            ("nats:*", "docker.io/library/nats:2", true),
            ("docker.io/library/nats:*", "nats:2", true),
            ("docker.io/library/nats:*", "docker.io/nats:2", true),
            ("nats:*", "index.docker.io/library/nats:2", true),
            ("library/nats:*", "nats:2", true),
            ("nats:*", "localhost/nats:2", false),
            ("registry.local:5000/w:*", "registry.local:5000/w:1", true),
            ("*", "registry.local:5000/a/b/c:1", true),
            ("*/b/*:1", "registry.local:5000/a/b/c:1", true),
            ("*/b/*:2", "registry.local:5000/a/b/c:1", false),
            ("a*a", "a", false),
            ("nats:2*-alpine", "nats:2.1-alpine", true),
            ("nats:2*-alpine", "nats:2.1-alpine3", false),
        ];
        for (pattern, image, expected) in rows {
            assert_eq!(
                Name::read(image).unwrap().matches(pattern),
                expected,
                "{pattern} {image}"
            );
        }
    }

    #[test]
    fn a_tag_is_what_follows_the_last_colon_of_the_last_part() {
        let digits = "0123456789abcdef0123456789abcdef";
        let rows = [
            ("a:1.2", "1.2".to_owned()),
            ("a", "latest".to_owned()),
            ("r.io:5000/a", "latest".to_owned()),
            ("r.io:5000/a:v1_x", "v1_x".to_owned()),
            (&format!("a:9@sha256:{digits}"), "9".to_owned()),
            (&format!("a@sha256:{digits}"), digits.to_owned()),
        ];
        for (image, expected) in rows {
            assert_eq!(Name::read(image).unwrap().tag(), expected, "{image}");
        }
    }

    #[test]
    fn what_is_no_image_name_is_said_in_the_references_words() {
        for image in [
            "",
            "a:",
            "a:..",
            "a:../../etc",
            "a b",
            "-a",
            "a@sha256:1",
            "a//b",
            "http://x/y",
        ] {
            assert_eq!(Name::read(image).unwrap_err(), "invalid reference format", "{image}");
        }
        assert_eq!(
            Name::read("Web:1").unwrap_err(),
            "invalid reference format: repository name (library/Web) must be lowercase"
        );
    }
}
