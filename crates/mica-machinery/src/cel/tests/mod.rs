//! Tables of expressions with the answers of kube-apiserver 1.36.
