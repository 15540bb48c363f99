"""scikit-learn regressors, one file for each method."""
