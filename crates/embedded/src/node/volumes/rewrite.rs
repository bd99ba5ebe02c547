//! Volumes where nothing can be mounted (level `paths`): words that begin with a mountPath name the volume's folder
//! instead, and `USHER_MOUNT_<VOLUME>` tells programs where a volume is.
//!
//! A word begins at the text's start, after a blank, or after one of the signs that part words in shells, lists and
//! options (`--dir=/data`, `a:/data/b`, `${DIR:-/data}`). A URL's path begins no word. What was put in is not read again.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{LifecycleHandler, Probe};

use super::Mount;
use crate::node::environment::Process;

/// How one container's words are rewritten.
#[derive(Debug, Clone, Default)]
pub struct Rewriter {
    /// mountPath and folder, the longest mountPath first.
    rules: Vec<(String, String)>,
    variables: BTreeMap<String, String>,
}

impl Rewriter {
    #[must_use]
    pub fn new(mounts: &[Mount]) -> Self {
        let mut rules: Vec<(String, String)> = mounts
            .iter()
            .map(|mount| {
                let target = mount.target.trim_end_matches('/').to_owned();
                (target, mount.source.display().to_string())
            })
            // A volume at the root cannot be told from every other path.
            .filter(|(target, _)| !target.is_empty())
            .collect();
        rules.sort_by_key(|(target, _)| std::cmp::Reverse(target.len()));
        let mut variables = BTreeMap::new();
        for mount in mounts {
            let name = format!("USHER_MOUNT_{}", mount.volume.to_uppercase().replace('-', "_"));
            // A volume mounted twice is named by its first mount.
            variables
                .entry(name)
                .or_insert_with(|| mount.source.display().to_string());
        }
        Self { rules, variables }
    }

    /// A container's command, variables and folder, with the `USHER_MOUNT_` variables added.
    pub fn process(&self, process: &mut Process) {
        for word in &mut process.argv {
            *word = self.text(word);
        }
        for value in process.env.values_mut() {
            *value = self.text(value);
        }
        process.workdir = self.text(&process.workdir);
        process.env.extend(self.variables.clone());
    }

    /// A probe whose command names folders. An httpGet's path is no folder's.
    #[must_use]
    pub fn probe(&self, probe: &Probe) -> Probe {
        let mut probe = probe.clone();
        if let Some(action) = &mut probe.exec {
            self.words(action.command.as_mut());
        }
        probe
    }

    #[must_use]
    pub fn hook(&self, hook: &LifecycleHandler) -> LifecycleHandler {
        let mut hook = hook.clone();
        if let Some(action) = &mut hook.exec {
            self.words(action.command.as_mut());
        }
        hook
    }

    #[must_use]
    pub fn text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut at = 0;
        while let Some((before, rest)) = text.split_at_checked(at) {
            if let Some((target, folder)) = self.rule(before, rest) {
                out.push_str(folder);
                at += target.len();
            } else if let Some(sign) = rest.chars().next() {
                out.push(sign);
                at += sign.len_utf8();
            } else {
                break;
            }
        }
        out
    }

    /// The rule for the word that begins between the two, if one does.
    fn rule(&self, before: &str, rest: &str) -> Option<&(String, String)> {
        if !begins_word(before) {
            return None;
        }
        self.rules.iter().find(|(target, _)| {
            rest.strip_prefix(target.as_str()).is_some_and(|behind| {
                behind
                    .chars()
                    .next()
                    .is_none_or(|sign| sign == '/' || parts_words(sign))
            })
        })
    }

    fn words(&self, words: Option<&mut Vec<String>>) {
        for word in words.into_iter().flatten() {
            *word = self.text(word);
        }
    }
}

fn begins_word(before: &str) -> bool {
    before.chars().next_back().is_none_or(parts_words) || before.ends_with(":-")
}

/// Signs that are no part of a word.
fn parts_words(sign: char) -> bool {
    sign.is_whitespace() || "\"'`=:,;|&<>()[]{}".contains(sign)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mount(volume: &str, source: &str, target: &str) -> Mount {
        Mount {
            volume: volume.to_owned(),
            source: source.into(),
            within: source.into(),
            target: target.to_owned(),
            read_only: false,
        }
    }

    fn rewriter() -> Rewriter {
        Rewriter::new(&[
            mount("data", "/u/v/data", "/data"),
            mount("cache-dir", "/u/v/cache", "/data/cache/"),
            mount("conf", "/u/v/conf/app.conf", "/etc/app.conf"),
            mount("all", "/u/v/all", "/"),
        ])
    }

    #[test]
    fn n5_words_that_begin_with_a_mount_path_name_the_folder() {
        let rows = [
            ("/data", "/u/v/data"),
            ("/data/", "/u/v/data/"),
            ("/data/x/y", "/u/v/data/x/y"),
            ("/data/cache", "/u/v/cache"),
            ("/data/cache/x", "/u/v/cache/x"),
            ("/data/cached", "/u/v/data/cached"),
            ("/database", "/database"),
            ("/data.old", "/data.old"),
            ("/x/data", "/x/data"),
            ("data", "data"),
            ("/", "/"),
            ("--dir=/data", "--dir=/u/v/data"),
            ("/bin:/data/bin:/data", "/bin:/u/v/data/bin:/u/v/data"),
            (
                "cat /data/a > /data/b; ls '/data'",
                "cat /u/v/data/a > /u/v/data/b; ls '/u/v/data'",
            ),
            ("${DIR:-/data}", "${DIR:-/u/v/data}"),
            ("http://host/data", "http://host/data"),
            ("http://host:80/data?dir=/data", "http://host:80/data?dir=/u/v/data"),
            ("{\"path\":\"/data\"}", "{\"path\":\"/u/v/data\"}"),
            ("/etc/app.conf", "/u/v/conf/app.conf"),
            ("/etc/app.config", "/etc/app.config"),
            ("é/data é /data", "é/data é /u/v/data"),
        ];
        for (text, expected) in rows {
            assert_eq!(rewriter().text(text), expected, "{text}");
        }
    }

    #[test]
    fn n5_a_process_learns_where_its_volumes_are() {
        let mut process = Process {
            argv: vec!["server".to_owned(), "--dir".to_owned(), "/data/cache".to_owned()],
            env: [("HOME".to_owned(), "/data".to_owned())].into(),
            workdir: "/data".to_owned(),
            identity: Default::default(),
        };
        rewriter().process(&mut process);
        assert_eq!(process.argv, ["server", "--dir", "/u/v/cache"]);
        assert_eq!(process.workdir, "/u/v/data");
        assert_eq!(process.env["HOME"], "/u/v/data");
        assert_eq!(process.env["USHER_MOUNT_CACHE_DIR"], "/u/v/cache");
        assert_eq!(process.env["USHER_MOUNT_DATA"], "/u/v/data");
    }

    #[test]
    fn n5_probes_and_hooks_name_folders_in_commands_but_not_in_urls() {
        let probe: Probe = serde_json::from_value(serde_json::json!({
            "exec": {"command": ["test", "-f", "/data/ready"]}, "httpGet": {"port": 80, "path": "/data"},
        }))
        .unwrap();
        let probe = rewriter().probe(&probe);
        assert_eq!(probe.exec.unwrap().command.unwrap(), ["test", "-f", "/u/v/data/ready"]);
        assert_eq!(probe.http_get.unwrap().path.unwrap(), "/data");
        let hook: LifecycleHandler =
            serde_json::from_value(serde_json::json!({"exec": {"command": ["rm", "/data/x"]}})).unwrap();
        assert_eq!(
            rewriter().hook(&hook).exec.unwrap().command.unwrap(),
            ["rm", "/u/v/data/x"]
        );
    }

    proptest! {
        /// Words are parted and put together again: each must come out as if it stood alone.
        #[test]
        fn n5_each_word_is_rewritten_as_if_it_stood_alone(
            words in prop::collection::vec("(/data|/data/cache|/etc/app.conf|/x|data|base|/){0,3}", 0..6),
            between in "[ =:;,]",
        ) {
            let whole = rewriter().text(&words.join(&between));
            let alone: Vec<String> = words.iter().map(|word| rewriter().text(word)).collect();
            prop_assert_eq!(whole, alone.join(&between));
        }

        /// A word is left alone, or its longest mountPath is exchanged for the folder; nothing else happens.
        #[test]
        fn n5_a_word_keeps_all_but_its_longest_mount_path(tail in "(/[a-z.]{1,4}){0,3}|[a-z.]{1,4}") {
            for (target, folder) in [("/data", "/u/v/data"), ("/data/cache", "/u/v/cache")] {
                let word = format!("{target}{tail}");
                let expected = if tail.is_empty() || tail.starts_with('/') {
                    if word == "/data/cache" || word.starts_with("/data/cache/") {
                        word.replacen("/data/cache", "/u/v/cache", 1)
                    } else {
                        format!("{folder}{tail}")
                    }
                } else if target == "/data/cache" {
                    word.replacen("/data", "/u/v/data", 1)
                } else {
                    word.clone()
                };
                prop_assert_eq!(rewriter().text(&word), expected);
            }
        }
    }
}
