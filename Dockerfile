# docker build -t lockstep .
# docker run --rm lockstep --help
# docker run --rm -v "$PWD/models:/lockstep/models" -v "$PWD/data:/lockstep/data" -v "$PWD/runs:/lockstep/runs" \
#   lockstep -np 2 train --config configs/arithmetic.yaml
# docker run --rm -it --entrypoint scripts/quickstart lockstep
FROM debian:12

WORKDIR /lockstep
COPY scripts/install scripts/install
RUN scripts/install && rm -rf /var/lib/apt/lists/*

COPY . .
RUN cmake --preset release && cmake --build --preset release --target lockstep

# The default profile of containers may forbid reading another process's memory, which is how Open MPI would copy on one machine.
ENV OMPI_MCA_btl_vader_single_copy_mechanism=none
ENTRYPOINT ["scripts/launch"]
CMD ["--help"]
