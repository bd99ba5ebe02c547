//! Where things are: the folder that is taken without `--data`, and names as a shell takes them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Within the user's data folder.
const FOLDER: &str = "usher/default";

/// `$XDG_DATA_HOME/usher/default`, or below `~/.local/share`.
pub(super) fn default_folder() -> Result<PathBuf, String> {
    let variable = |name: &str| std::env::var_os(name);
    data_folder(variable("XDG_DATA_HOME"), variable("HOME"))
        .ok_or_else(|| "neither $XDG_DATA_HOME nor $HOME names a folder; name one with --data FOLDER".to_owned())
}

fn data_folder(data_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    // The XDG specification: what is not absolute is ignored.
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let home = home.and_then(absolute).map(|home| home.join(".local/share"));
    Some(data_home.and_then(absolute).or(home)?.join(FOLDER))
}

/// A file's name as one word of a shell.
pub(super) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+,:@%=".contains(letter);
    if text.chars().all(is_plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e5_the_default_folder_is_in_the_users_data_folder() {
        let folder = |data: Option<&str>, home: Option<&str>| {
            data_folder(data.map(OsString::from), home.map(OsString::from)).map(|path| path.display().to_string())
        };
        assert_eq!(
            folder(Some("/data"), Some("/home/me")).as_deref(),
            Some("/data/usher/default")
        );
        for unset in [None, Some(""), Some("relative")] {
            assert_eq!(
                folder(unset, Some("/home/me")).as_deref(),
                Some("/home/me/.local/share/usher/default")
            );
        }
        assert_eq!(folder(None, None), None);
    }

    #[test]
    fn a_shell_takes_a_quoted_name_for_one_word() {
        assert_eq!(quoted(Path::new("/home/me/.kube/config")), "/home/me/.kube/config");
        assert_eq!(quoted(Path::new("/home/it's me/k")), r"'/home/it'\''s me/k'");
    }
}
