# Any Debian of this release can be the base: --build-arg BASE=registry.example/debian:trixie-slim. Python comes from the
# distribution, so that its security fixes are the distribution's, and so that no pip is left in the result.
ARG BASE=docker.io/library/debian:trixie-slim

FROM ${BASE} AS build
# pip's own variables, for hosts without PyPI: an index of one's own, or wheels in a directory that is mounted.
ARG PIP_INDEX_URL
ARG PIP_FIND_LINKS
ARG PIP_NO_INDEX
WORKDIR /build
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends python3-venv
COPY requirements/service.txt requirements/
RUN python3 -m venv pip \
 && python3 -m venv --without-pip /opt/clustercheckd \
 && pip/bin/pip --python /opt/clustercheckd/bin/python install --no-cache-dir --disable-pip-version-check \
      --require-hashes --only-binary :all: -r requirements/service.txt
COPY app app
# Without the argument, the version of the sources.
ARG VERSION
RUN [ -z "$VERSION" ] || sed -i "s/^__version__ = .*/__version__ = \"$VERSION\"/" app/__init__.py
# Straight into the environment: with only one package there is nothing for a build backend to do, and nothing to fetch.
RUN packages="$(/opt/clustercheckd/bin/python -c 'import site; print(site.getsitepackages()[0])')" \
 && cp -r app "$packages" \
 && /opt/clustercheckd/bin/python -m compileall -q "$packages/app" \
 && printf '#!/opt/clustercheckd/bin/python -IB\nimport sys\nfrom app.__main__ import main\nsys.exit(main())\n' \
      > /opt/clustercheckd/bin/clustercheckd \
 && chmod +x /opt/clustercheckd/bin/clustercheckd
COPY packaging/clustercheck /opt/clustercheckd/bin/

FROM ${BASE}
RUN apt-get update -q \
 && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends ca-certificates python3 \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/dpkg.log
COPY --from=build /opt/clustercheckd /opt/clustercheckd
COPY LICENSE /usr/share/doc/clustercheckd/copyright
ENV PATH=/opt/clustercheckd/bin:/usr/bin:/bin
ARG VERSION=unreleased
ARG REVISION=unknown
LABEL org.opencontainers.image.title="clustercheckd" \
      org.opencontainers.image.description="Tells HAProxy and Kubernetes whether a Galera node may take traffic" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# Any user id does: docker run --user, OpenShift's random ones. Nothing is written: the root may be read-only.
USER 65532:65532
EXPOSE 9200
STOPSIGNAL SIGTERM
# The exec form: clustercheckd is process 1 and gets the signals, no init is needed. There is no HEALTHCHECK: liveness is
# /livez, and Docker's would start a process for each question.
ENTRYPOINT ["clustercheckd"]
