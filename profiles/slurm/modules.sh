# Environment modules, for `source profiles/slurm/modules.sh` on a login node, before `make install` and before every run.
# The names are the Alliance's (Narval, Rorqual, Fir); jobs inherit what is loaded here (sbatch --export=ALL).
module load StdEnv/2023
module load python/3.11
module load cuda
module load arrow # only the Alliance's own wheels of pyarrow need it; the locked one brings its libraries
if [ -f .venv/bin/activate ]; then
  # shellcheck disable=SC1091
  source .venv/bin/activate
fi
